//! Runs of DAGs and of workflows, followed as server-sent events.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::State,
    http::HeaderMap,
    response::sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, StreamExt as _};
use hivekeep_door_server::event_feed::stream_over;
use hivekeep_ports::RunFeeds;
use serde_json::Map;

use super::{
    chats::{ChatEventsQuery, follow},
    error::ApiError,
    events::{KEEP_ALIVE, last_event_id},
    extract::{PathOf, QueryOf, Worker},
    published::{AnyErrorBody, ToolErrorBody},
    state::Api,
};

/// Follow the events of a run of a DAG or of a workflow as server-sent events, from its first on.
///
/// The id of each is its sequence, as for a chat, and `Last-Event-ID` goes on behind it. The stream ends behind the last
/// event of a run that is over.
#[utoipa::path(
    get, path = "/api/runs/{id}/events", tag = "hivekeep", operation_id = "followRun",
    params(
        ("id" = String, Path, description = "Run"), ChatEventsQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "Sequence of the last event that is known."),
    ),
    responses(
        (
            status = 200, description = "Events, for as long as the client stays.", body = String,
            content_type = "text/event-stream",
        ),
        (status = 202, description = "It needs an approval, and was not made.", body = ToolErrorBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 403, description = "It is not allowed.", body = AnyErrorBody),
        (status = 404, description = "No such run of the caller.", body = AnyErrorBody),
        (status = 409, description = "It is against another request with its key.", body = ToolErrorBody),
        (status = 422, description = "The tool cannot be called now, or its result is too large.", body = ToolErrorBody),
        (status = 500, description = "The daemon has a defect.", body = ToolErrorBody),
        (status = 502, description = "The tool failed.", body = ToolErrorBody),
    ),
)]
pub(super) async fn stream(
    State(api): State<Arc<Api>>,
    Worker(caller): Worker,
    PathOf(id): PathOf,
    QueryOf(wanted): QueryOf<ChatEventsQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let before = wanted.from.map_or(0, |from| from.saturating_sub(1));
    let after = last_event_id(&headers)?.unwrap_or(before);
    let place = api.streams.take(caller.user)?;
    let feeds = api.core.ports.find::<dyn RunFeeds>();
    let events = feeds.and_then(|feeds| feeds.events(caller.user, &id, after));
    let events = events.ok_or_else(|| ApiError::not_there("run", &id))?;
    let over = stream_over(&api.core, &caller, api.end.clone());
    // Whoever may not read the run may not follow it.
    let asked = Map::from_iter([("run_id".to_owned(), id.into()), ("limit".to_owned(), 1.into())]);
    api.call_tool(caller, "dag_logs", asked, &HeaderMap::new()).await?;
    let events = follow::follow(events, after, over).map(move |event| {
        // Held for as long as the stream is.
        let _place = &place;
        Ok(event)
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}
