//! Events as they happen: server-sent events with `Last-Event-ID`, and WebSocket.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::{
        State,
        ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::HeaderMap,
    response::{
        Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, stream};
use hivekeep_door_server::{
    event_feed::{EventFeed, EventFilter, FeedItem},
    http::caller::HttpCaller,
};
use hivekeep_kernel::PoolPlace;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    error::ApiError,
    extract::{QueryOf, Reader},
    published::{PlainErrorBody, ToolErrorBody, ToolReason},
    state::Api,
};

/// Interval of a comment that keeps an idle stream open.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Characters of a filter.
const FILTER_CHARS: usize = 200;

/// Events that are wanted.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Only events of this kind; with a final `*` all kinds that begin so, as `call.*`.
    #[param(max_length = 200)]
    kind: Option<String>,
    /// Only events about this, as a session or a workspace.
    #[param(max_length = 200)]
    subject: Option<String>,
    /// Number of the first event wanted, also one of the past; from now on without it.
    from: Option<u64>,
}

impl EventsQuery {
    fn check(self) -> Result<Self, ApiError> {
        let long = |text: &Option<String>| {
            text.as_ref().is_some_and(|text| text.chars().count() > FILTER_CHARS)
        };
        match long(&self.kind) || long(&self.subject) {
            true => {
                let why = format!("a filter has more than {FILTER_CHARS} characters");
                Err(ApiError::invalid(ToolReason::SchemaInvalid, why))
            }
            false => Ok(self),
        }
    }
}

/// Events that a subscriber may fall behind.
const BEHIND: usize = 256;

/// Subscribes, and takes a place among the streams of the door, which lasts as long as its guard.
///
/// # Errors
/// When the caller, or all, have as many streams as there may be.
fn feed(
    api: &Api,
    caller: &HttpCaller,
    wanted: EventsQuery,
) -> Result<(EventFeed, PoolPlace), ApiError> {
    let place = api.streams.take(caller.user)?;
    let EventsQuery { kind, subject, from } = wanted;
    let filter =
        EventFilter { kinds: kind.into_iter().collect(), subject, ..EventFilter::default() };
    Ok((EventFeed::new(&api.core, caller, (from, BEHIND), filter, api.end.clone()), place))
}

/// Number of the last event that a client has, which goes before the query.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| {
        ApiError::invalid(ToolReason::SchemaInvalid, "`Last-Event-ID` should be an event's number")
    })
}

/// Follow events as server-sent events.
///
/// The id of each is its number, and `Last-Event-ID` goes on behind it. A client that reads too slowly is
/// told in an event `missed` which it has lost. A credential of scope session sees the events of its own
/// sessions.
#[utoipa::path(
    get, path = "/api/events", tag = "hivekeep", operation_id = "streamEvents",
    params(
        EventsQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "Number of the last event that is known."),
    ),
    responses(
        (
            status = 200, description = "Events, for as long as the client stays.", body = String,
            content_type = "text/event-stream",
        ),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
    ),
)]
pub(super) async fn stream_events(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    QueryOf(mut wanted): QueryOf<EventsQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    if let Some(last) = last_event_id(&headers)? {
        wanted.from = Some(last.saturating_add(1));
    }
    let feed = feed(&api, &caller, wanted.check()?)?;
    let events = stream::unfold(feed, |(mut feed, place)| async move {
        let item = feed.next().await?;
        Some((Ok(sent(&item)), (feed, place)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

fn sent(item: &FeedItem) -> Event {
    let event = Event::default().id(item.seq().to_string());
    // JSON has no line breaks, and a kind is one word.
    event.event(item.kind()).data(item.json())
}

/// Bytes of a message of a client, which has nothing to say.
const HEARD_BYTES: usize = 4 * 1024;

/// Follow events over WebSocket.
///
/// Each message is an event as JSON, or `{"missed": {"first", "last", "count"}}` where the client has lost
/// some. What the client sends is not read.
#[utoipa::path(
    get, path = "/api/events/ws", tag = "hivekeep", operation_id = "socketEvents",
    params(EventsQuery),
    responses(
        (status = 101, description = "Events follow."),
        (status = 400, description = "The request is not valid.", body = super::published::AnyErrorBody),
        (status = 426, description = "The request is not a WebSocket handshake.", body = PlainErrorBody),
    ),
)]
pub(super) async fn socket(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    QueryOf(wanted): QueryOf<EventsQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let wanted = wanted.check()?;
    let upgrade = upgrade.map_err(|error| ApiError::plain(error.status(), error.body_text()))?;
    let (feed, place) = feed(&api, &caller, wanted)?;
    let upgrade = upgrade.max_message_size(HEARD_BYTES).max_frame_size(HEARD_BYTES);
    Ok(upgrade.on_upgrade(async move |socket| {
        tell(socket, feed).await;
        drop(place);
    }))
}

async fn tell(mut socket: WebSocket, mut feed: EventFeed) {
    let mut beat = tokio::time::interval(KEEP_ALIVE);
    loop {
        let message = tokio::select! {
            item = feed.next() => match item {
                Some(item) => Message::Text(item.json().into()),
                None => break,
            },
            _ = beat.tick() => Message::Ping(Default::default()),
            heard = socket.recv() => match heard {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
        };
        // A client that does not read holds this up and nobody else; its connection ends in time.
        if socket.send(message).await.is_err() {
            return;
        }
    }
    // The client may have gone.
    let _gone = socket.send(Message::Close(None)).await;
}
