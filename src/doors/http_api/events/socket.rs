//! Events over WebSocket: each a text message of JSON.

use std::sync::Arc;

use axum::{
    extract::{
        State,
        ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    response::Response,
};

use super::{
    super::{
        error::ApiError,
        extract::{QueryOf, Reader},
        state::Api,
    },
    EventFeed, EventsQuery, KEEP_ALIVE, PlainErrorBody, feed,
};

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
        (status = 400, description = "The request is not valid.", body = super::super::published::AnyErrorBody),
        (status = 426, description = "The request is not a WebSocket handshake.", body = PlainErrorBody),
    ),
)]
pub(in super::super) async fn socket(
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
