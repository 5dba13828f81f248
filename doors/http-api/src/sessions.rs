//! Sessions over HTTP: opened, listed, looked at, stopped, resumed.

mod binding;

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use chrono::{DateTime, Utc};
use hivekeep_door_server::{credentials::CredentialScope, http::caller::HttpCaller, plain};
use hivekeep_kernel::Door;
use hivekeep_registry::{OpenSession, SessionRow, SessionState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    error::ApiError,
    extract::{BodyOf, PathOf, Reader, Worker},
    published::{AnyErrorBody, PlainErrorBody, ToolErrorBody},
    state::Api,
};

/// Characters of a client's name.
const NAME_CHARS: usize = 120;

/// A session to open.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = OpenSessionRequest)]
pub(super) struct OpenSessionBody {
    /// The client's name for itself, for people.
    #[schema(max_length = 120, example = "nightly build")]
    name: Option<String>,
    /// Session that it is made for; it then has no tool that its parent has not.
    parent_session_id: Option<String>,
    /// Ids of the only tools that it may call. A child without them has none.
    #[schema(max_items = 1000)]
    tools: Option<Vec<String>>,
    /// Agent that it works for. Only an operator names another than the parent's.
    #[schema(max_length = 120)]
    agent_name: Option<String>,
    /// Its security context. Only an operator names another than the parent's.
    context: Option<String>,
    /// Name of the credential that it is opened for, by an operator.
    credential: Option<String>,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub(super) struct SessionPayload {
    /// Id.
    id: String,
    /// `attached` while requests name it, `detached` for a time after that, then `ended`.
    state: String,
    /// The door that it was opened through.
    door: String,
    /// The client's name for itself.
    name: String,
    /// The user that it belongs to, as `credential:cred_...`.
    user: Option<String>,
    /// Calls that run now.
    calls_in_flight: u32,
    /// Calls since the daemon started.
    calls_total: u64,
    /// Seconds since a client was attached or a call running.
    idle_secs: u64,
    /// When it was opened.
    #[schema(value_type = String, format = DateTime)]
    opened_at: DateTime<Utc>,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<DateTime<Utc>>,
    /// Why it ended.
    end_reason: Option<String>,
    /// Agent that it works for.
    agent_name: Option<String>,
    /// Its security context.
    context: Option<String>,
    /// Session that it was made for.
    parent_session_id: Option<String>,
    /// Ids of the only tools that it may call.
    tools: Option<Vec<String>>,
}

/// Response with a session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionResponse)]
pub(super) struct SessionBody {
    session: SessionPayload,
}

/// Sessions, the oldest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionList)]
pub(super) struct SessionsBody {
    sessions: Vec<SessionPayload>,
}

/// A word of a closed list, as it is on the wire.
pub(super) fn word(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

impl From<SessionRow> for SessionPayload {
    fn from(row: SessionRow) -> Self {
        Self {
            id: row.session.to_string(),
            state: word(row.state),
            door: word(row.door),
            name: row.client,
            user: row.user.map(|user| user.to_string()),
            calls_in_flight: row.calls_in_flight,
            calls_total: row.calls_total,
            idle_secs: row.idle_secs,
            opened_at: row.opened_at,
            ended_at: row.ended_at,
            end_reason: row.end_reason.map(word),
            agent_name: row.profile.agent,
            context: row.profile.context,
            parent_session_id: row.profile.parent.map(|id| id.to_string()),
            tools: row
                .profile
                .tools
                .map(|tools| tools.iter().map(|name| name.replace('.', "_")).collect()),
        }
    }
}

impl Api {
    fn shown(&self, caller: &HttpCaller, id: &str) -> Result<Json<SessionBody>, ApiError> {
        Ok(Json(SessionBody { session: self.session(caller, id)?.into() }))
    }
}

/// Open a session.
#[utoipa::path(
    post, path = "/api/sessions", tag = "hivekeep", operation_id = "openSession",
    request_body = OpenSessionBody,
    responses(
        (status = 201, description = "It is open.", body = SessionBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 403, description = "The caller or the parent has less.", body = AnyErrorBody),
        (status = 404, description = "No such parent, tool or credential.", body = AnyErrorBody),
        (status = 409, description = "The parent is over.", body = PlainErrorBody),
        (status = 422, description = "There are too many sessions.", body = ToolErrorBody),
        (status = 502, description = "It could not be written down.", body = ToolErrorBody),
    ),
)]
pub(super) async fn open(
    State(api): State<Arc<Api>>,
    Worker(caller): Worker,
    BodyOf(body): BodyOf<OpenSessionBody>,
) -> Result<(StatusCode, Json<SessionBody>), ApiError> {
    let (user, profile) = api.bound(&caller, &body)?;
    let named = body.name.unwrap_or_else(|| format!("HTTP API ({})", caller.name));
    let client = plain::name(&named, NAME_CHARS);
    let request = OpenSession { door: Door::HttpApi, client, user, resume: None, profile };
    let attachment = api.core.sessions.open(request).await?;
    let id = attachment.session.to_string();
    api.held.keep(attachment);
    Ok((StatusCode::CREATED, api.shown(&caller, &id)?))
}

/// List sessions: the caller's own, or all for operators and readers.
#[utoipa::path(
    get, path = "/api/sessions", tag = "hivekeep", operation_id = "listSessions",
    responses((status = 200, description = "Sessions, the oldest first.", body = SessionsBody)),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
) -> Json<SessionsBody> {
    let mut rows = api.core.sessions.list().await;
    if caller.scope == CredentialScope::Session {
        rows.retain(|row| row.user == Some(caller.user));
    }
    Json(SessionsBody { sessions: rows.into_iter().map(SessionPayload::from).collect() })
}

/// Look at a session.
#[utoipa::path(
    get, path = "/api/sessions/{id}", tag = "hivekeep", operation_id = "getSession",
    params(("id" = String, Path, description = "Session")),
    responses(
        (status = 200, description = "The session.", body = SessionBody),
        (status = 404, description = "No such session of the caller.", body = PlainErrorBody),
    ),
)]
pub(super) async fn get(
    State(api): State<Arc<Api>>,
    Reader(caller): Reader,
    PathOf(id): PathOf,
) -> Result<Json<SessionBody>, ApiError> {
    api.shown(&caller, &id)
}

/// Stop a session: its calls are cancelled, and what it owns can be adopted. One that is over stays so.
#[utoipa::path(
    post, path = "/api/sessions/{id}/stop", tag = "hivekeep", operation_id = "stopSession",
    params(("id" = String, Path, description = "Session")),
    responses(
        (status = 200, description = "It is over.", body = SessionBody),
        (status = 404, description = "No such session of the caller.", body = PlainErrorBody),
        (status = 502, description = "It could not be written down.", body = ToolErrorBody),
    ),
)]
pub(super) async fn stop(
    State(api): State<Arc<Api>>,
    Worker(caller): Worker,
    PathOf(id): PathOf,
) -> Result<Json<SessionBody>, ApiError> {
    let row = api.session(&caller, &id)?;
    api.core.sessions.end(row.session).await?;
    api.shown(&caller, &id)
}

/// Resume a session that was left and is not over.
#[utoipa::path(
    post, path = "/api/sessions/{id}/resume", tag = "hivekeep", operation_id = "resumeSession",
    params(("id" = String, Path, description = "Session")),
    responses(
        (status = 200, description = "It is attached again.", body = SessionBody),
        (status = 404, description = "No such session of the caller.", body = PlainErrorBody),
        (status = 409, description = "It is over.", body = PlainErrorBody),
    ),
)]
pub(super) async fn resume(
    State(api): State<Arc<Api>>,
    Worker(caller): Worker,
    PathOf(id): PathOf,
) -> Result<Json<SessionBody>, ApiError> {
    let row = api.session(&caller, &id)?;
    let over = || ApiError::plain(StatusCode::CONFLICT, "the session is over; open a new one");
    if row.state == SessionState::Ended {
        return Err(over());
    }
    match api.held.touch(row.session).await {
        Err(error) if error.is(hivekeep_door_server::codes::SESSION_ENDED) => return Err(over()),
        touched => touched?,
    }
    api.shown(&caller, &id)
}
