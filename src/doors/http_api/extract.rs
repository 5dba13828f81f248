//! Extractors: the caller with the scope that a handler wants, and inputs whose refusals are answers of
//! the API.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{StatusCode, request::Parts},
};
use serde::de::DeserializeOwned;

use super::{error::ApiError, published::ToolReason};
use crate::doors::http::caller::HttpCaller;

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
