//! Chats with agents: listed, opened, read and written to by calls of their tools, under the caller's policy, and
//! followed as server-sent events.

pub(super) mod follow;

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::State,
    http::HeaderMap,
    response::{
        Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, StreamExt as _};
use hivekeep_door_server::{event_feed::stream_over, http::caller::HttpCaller};
use hivekeep_ports::{ChatEvents, Chats};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::{
    error::ApiError,
    events::{KEEP_ALIVE, last_event_id},
    extract::{BodyOf, PathOf, QueryOf, Worker},
    published::{AnyErrorBody, ToolErrorBody},
    state::Api,
};

/// A chat to open.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = OpenChatRequest)]
pub(super) struct OpenChatBody {
    /// Name for people.
    #[schema(min_length = 1, max_length = 200)]
    name: String,
}

/// A message to send.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = SendChatRequest)]
pub(super) struct SendChatBody {
    /// Text for the agent.
    #[schema(min_length = 1, max_length = 65_536)]
    message: String,
}

/// Messages that are wanted.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ChatQuery {
    /// Most messages, the newest, from 1 to 1000; 50 without it.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Events that are wanted.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ChatEventsQuery {
    /// Sequence of the first event wanted; all of them without it.
    pub(super) from: Option<u64>,
}

fn input(members: Value) -> Map<String, Value> {
    match members {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

impl Api {
    /// Events of a chat of the caller's own; any other one is not found.
    fn chat(
        &self,
        caller: &HttpCaller,
        id: &str,
        after: u64,
    ) -> Result<Box<dyn ChatEvents>, ApiError> {
        let chats = self.core.ports.find::<dyn Chats>();
        let events = chats.and_then(|chats| chats.events(caller.user, id, after));
        events.ok_or_else(|| ApiError::not_there("chat", id))
    }
}

/// List the caller's chats, the newest first.
#[utoipa::path(
    get, path = "/api/chats", tag = "hivekeep", operation_id = "listChats",
    responses(
        (status = 200, description = "Result of `ide_session_list`.", body = Value),
        (status = 202, description = "It needs an approval, and was not made.", body = ToolErrorBody),
        (status = 403, description = "It is not allowed.", body = AnyErrorBody),
        (status = 409, description = "It is against another request with its key.", body = ToolErrorBody),
        (status = 422, description = "The tool cannot be called now, or its result is too large.", body = ToolErrorBody),
        (status = 500, description = "The daemon has a defect.", body = ToolErrorBody),
        (status = 502, description = "The tool failed.", body = ToolErrorBody),
    ),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Worker(caller): Worker,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    api.call_tool(caller, "ide_session_list", Map::new(), &headers).await
}

/// Open a chat with an agent. With `Idempotency-Key` it is opened once.
#[utoipa::path(
    post, path = "/api/chats", tag = "hivekeep", operation_id = "openChat",
    params(("Idempotency-Key" = Option<String>, Header, max_length = 200, description = "As for a call of a tool.")),
    request_body = OpenChatBody,
    responses(
        (status = 200, description = "Result of `ide_session_create`.", body = Value),
        (status = 202, description = "It needs an approval, and was not made.", body = ToolErrorBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 403, description = "It is not allowed.", body = AnyErrorBody),
        (status = 409, description = "It is against another request with its key.", body = ToolErrorBody),
        (status = 422, description = "The tool cannot be called now, or its result is too large.", body = ToolErrorBody),
        (status = 500, description = "The daemon has a defect.", body = ToolErrorBody),
        (status = 502, description = "The tool failed.", body = ToolErrorBody),
    ),
)]
pub(super) async fn open(
    State(api): State<Arc<Api>>,
    Worker(caller): Worker,
    headers: HeaderMap,
    BodyOf(body): BodyOf<OpenChatBody>,
) -> Result<Response, ApiError> {
    api.call_tool(caller, "ide_session_create", input(json!(body)), &headers).await
}

/// Read the newest messages of a chat.
#[utoipa::path(
    get, path = "/api/chats/{id}/messages", tag = "hivekeep", operation_id = "readChat",
    params(("id" = String, Path, description = "Chat"), ChatQuery),
    responses(
        (status = 200, description = "Result of `ide_chat_history`.", body = Value),
        (status = 202, description = "It needs an approval, and was not made.", body = ToolErrorBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 403, description = "It is not allowed.", body = AnyErrorBody),
        (status = 404, description = "No such chat of the caller.", body = AnyErrorBody),
        (status = 409, description = "It is against another request with its key.", body = ToolErrorBody),
        (status = 422, description = "The tool cannot be called now, or its result is too large.", body = ToolErrorBody),
        (status = 500, description = "The daemon has a defect.", body = ToolErrorBody),
        (status = 502, description = "The tool failed.", body = ToolErrorBody),
    ),
)]
pub(super) async fn messages(
    State(api): State<Arc<Api>>,
    Worker(caller): Worker,
    PathOf(id): PathOf,
    QueryOf(ChatQuery { limit }): QueryOf<ChatQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    api.chat(&caller, &id, 0)?;
    let asked = json!({ "sessionId": id, "limit": limit.unwrap_or(50) });
    api.call_tool(caller, "ide_chat_history", input(asked), &headers).await
}

/// Send a message to a chat. With `Idempotency-Key` it is sent once.
///
/// It is on the disk when this is answered; the agent's answer is among the events.
#[utoipa::path(
    post, path = "/api/chats/{id}/messages", tag = "hivekeep", operation_id = "sendToChat",
    params(
        ("id" = String, Path, description = "Chat"),
        ("Idempotency-Key" = Option<String>, Header, max_length = 200, description = "As for a call of a tool."),
    ),
    request_body = SendChatBody,
    responses(
        (status = 200, description = "Result of `ide_chat_send`.", body = Value),
        (status = 202, description = "It needs an approval, and was not made.", body = ToolErrorBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 403, description = "It is not allowed.", body = AnyErrorBody),
        (status = 404, description = "No such chat of the caller.", body = AnyErrorBody),
        (status = 409, description = "It is against another request with its key, or the chat is over.", body = ToolErrorBody),
        (status = 422, description = "The tool cannot be called now, or its result is too large.", body = ToolErrorBody),
        (status = 500, description = "The daemon has a defect.", body = ToolErrorBody),
        (status = 502, description = "The tool failed.", body = ToolErrorBody),
    ),
)]
pub(super) async fn send(
    State(api): State<Arc<Api>>,
    Worker(caller): Worker,
    PathOf(id): PathOf,
    headers: HeaderMap,
    BodyOf(SendChatBody { message }): BodyOf<SendChatBody>,
) -> Result<Response, ApiError> {
    api.chat(&caller, &id, 0)?;
    let asked = json!({ "sessionId": id, "message": message });
    api.call_tool(caller, "ide_chat_send", input(asked), &headers).await
}

/// Follow the events of a chat as server-sent events, from its first on.
///
/// The id of each is its sequence, from 1 and without a gap, and `Last-Event-ID` goes on behind it: nothing is lost and
/// nothing comes twice. A client that does not take what is there for it is told so in an event `stream_failed`
/// with the code `reader_too_slow`, and has to connect again. The stream ends behind the last event of a chat that is
/// over.
#[utoipa::path(
    get, path = "/api/chats/{id}/events", tag = "hivekeep", operation_id = "followChat",
    params(
        ("id" = String, Path, description = "Chat"), ChatEventsQuery,
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
        (status = 404, description = "No such chat of the caller.", body = AnyErrorBody),
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
    let events = api.chat(&caller, &id, after)?;
    let over = stream_over(&api.core, &caller, api.end.clone());
    // Whoever may not read the chat may not follow it.
    let asked = json!({ "sessionId": id, "limit": 1 });
    api.call_tool(caller, "ide_chat_history", input(asked), &HeaderMap::new()).await?;
    let events = follow::follow(events, after, over).map(move |event| {
        // Held for as long as the stream is.
        let _place = &place;
        Ok(event)
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}
