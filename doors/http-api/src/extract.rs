//! Extractors: the caller with the scope that a handler wants, inputs whose refusals are answers of the API, and the
//! session, workspace and agent that a request is about.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{StatusCode, request::Parts},
};
use hivekeep_door_server::{credentials::CredentialScope, http::caller::HttpCaller};
use hivekeep_kernel::{SessionId, User};
use hivekeep_policy::SessionProfile;
use hivekeep_registry::{SessionRow, ToolView};
use serde::{Deserialize, de::DeserializeOwned};
use utoipa::IntoParams;

use super::{error::ApiError, published::ToolReason, state::Api};

/// A caller of any scope.
pub(super) struct Reader(pub(super) HttpCaller);

/// A caller that may change something, in its own sessions at least.
pub(super) struct Worker(pub(super) HttpCaller);

/// A caller that reaches all sessions.
pub(super) struct OperatorOnly(pub(super) HttpCaller);

fn caller(parts: &Parts) -> Result<HttpCaller, ApiError> {
    // Where there is none, the route is public by mistake: nobody gets in.
    let none = ApiError::Unauthorized { given: false };
    parts.extensions.get::<HttpCaller>().cloned().ok_or(none)
}

impl<S: Sync> FromRequestParts<S> for Reader {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        caller(parts).map(Self)
    }
}

impl<S: Sync> FromRequestParts<S> for Worker {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = caller(parts)?;
        match caller.may_change() {
            true => Ok(Self(caller)),
            false => Err(ApiError::Scope("a read-only credential changes nothing")),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for OperatorOnly {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = caller(parts)?;
        match caller.is_operator() {
            true => Ok(Self(caller)),
            false => Err(ApiError::Scope("this needs a credential of scope operator")),
        }
    }
}

/// The query of a request.
pub(super) struct QueryOf<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for QueryOf<T> {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(error) => Err(ApiError::invalid(ToolReason::SchemaInvalid, error.body_text())),
        }
    }
}

/// The one parameter of a request's path.
pub(super) struct PathOf(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathOf {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(error) => Err(ApiError::plain(StatusCode::BAD_REQUEST, error.body_text())),
        }
    }
}

/// The JSON body of a request. Members that nobody knows are ignored.
pub(super) struct BodyOf<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for BodyOf<T> {
    type Rejection = ApiError;
    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let invalid = |why: String| ApiError::invalid(ToolReason::SchemaInvalid, why);
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| invalid(error.body_text()))?;
        if body.trim_ascii().is_empty() {
            return Err(invalid("the body is empty, and should be a JSON object".to_owned()));
        }
        let parsed = hivekeep_runtime::json_text::body(&body);
        parsed.map(Self).map_err(|error| invalid(format!("the body is not valid: {error}")))
    }
}

/// The scope as a query has it.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ScopeQuery {
    /// Workspace that the call would be about.
    pub(super) workspace_id: Option<String>,
    /// The same by another name; `workspace_id` goes before it.
    pub(super) workspace: Option<String>,
    /// Session that the call would be made in.
    pub(super) session_id: Option<String>,
    /// Agent that the call would be made for.
    pub(super) agent_name: Option<String>,
}

impl ScopeQuery {
    /// A body's scope, which goes before the query's where it says something.
    pub(super) fn or(self, query: Self) -> Self {
        Self {
            workspace_id: self.workspace_id.or(self.workspace).or(query.workspace_id),
            workspace: query.workspace,
            session_id: self.session_id.or(query.session_id),
            agent_name: self.agent_name.or(query.agent_name),
        }
    }

    pub(super) fn workspace(&self) -> Option<String> {
        self.workspace_id.clone().or_else(|| self.workspace.clone())
    }
}

/// A scope whose session is there and within the caller's reach.
#[derive(Debug, Clone)]
pub(super) struct CallScope {
    pub(super) session: Option<SessionId>,
    /// Owner of the calls: the session's user, or the caller.
    pub(super) user: User,
    pub(super) workspace: Option<String>,
    /// Profile of the session; without one, the agent that is asked for.
    pub(super) profile: SessionProfile,
    /// Tools that may be called.
    pub(super) view: Arc<ToolView>,
}

impl CallScope {
    pub(super) fn agent(&self) -> Option<String> {
        self.profile.agent.clone()
    }
}

impl Api {
    /// A session within the caller's reach; any other one is not found.
    pub(super) fn session(&self, caller: &HttpCaller, id: &str) -> Result<SessionRow, ApiError> {
        let nobody = || ApiError::not_there("session", id);
        let row = id.parse().ok().and_then(|id| self.core.sessions.row(id)).ok_or_else(nobody)?;
        let own = row.user == Some(caller.user);
        match own || caller.scope != CredentialScope::Session {
            true => Ok(row),
            false => Err(nobody()),
        }
    }

    /// Binds a scope.
    pub(super) fn scope(
        &self,
        caller: &HttpCaller,
        asked: &ScopeQuery,
    ) -> Result<CallScope, ApiError> {
        let named = asked.session_id.as_deref().filter(|id| !id.trim().is_empty());
        let row = named.map(|id| self.session(caller, id)).transpose()?;
        let own = row.as_ref().is_none_or(|row| row.user == Some(caller.user));
        let view = match caller.is_operator() && own {
            true => ToolView::operator(),
            // No caller reaches further in another's session than that session does.
            false => self.core.usual_view(),
        };
        let agent = asked.agent_name.clone().filter(|name| !name.trim().is_empty());
        let profile = match &row {
            None => SessionProfile { agent, ..SessionProfile::default() },
            Some(row) if agent.is_none() || agent == row.profile.agent => row.profile.clone(),
            Some(_) => {
                let why = "`agent_name` is not the agent that the session works for; leave it out";
                return Err(ApiError::invalid(ToolReason::SchemaInvalid, why));
            }
        };
        Ok(CallScope {
            session: row.as_ref().map(|row| row.session),
            user: row.and_then(|row| row.user).unwrap_or(caller.user),
            workspace: asked.workspace(),
            profile,
            view: Arc::new(view),
        })
    }
}
