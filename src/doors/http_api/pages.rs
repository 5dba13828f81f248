//! Pages for people: the OpenAPI document, and a page that shows it. Both work offline, and need no
//! credential: they say nothing of this daemon but its version.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
    routing::get,
};
use utoipa::openapi::OpenApi;

use super::state::Api;

const PAGE: &str = include_str!("pages/docs.html");
const SCRIPT: &str = include_str!("pages/docs.js");
const STYLE: &str = include_str!("pages/docs.css");

/// Content that the page may load: its own script and style, and answers of this door.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PUBLIC: [&str; 5] =
    ["/api/health", "/api/docs", "/api/docs.js", "/api/docs.css", "/api/openapi.json"];

/// True for a path that needs no credential.
pub(super) fn is_public(path: &str) -> bool {
    PUBLIC.contains(&path)
}

pub(super) fn routes(document: OpenApi) -> Router<Arc<Api>> {
    let document = Bytes::from(serde_json::to_vec(&document).expect("it is plain data"));
    Router::new()
        .route("/api/openapi.json", get(move || async { typed("application/json", document) }))
        .route("/api/docs", get(|| async { typed("text/html; charset=utf-8", PAGE) }))
        .route("/api/docs.js", get(|| async { typed("text/javascript; charset=utf-8", SCRIPT) }))
        .route("/api/docs.css", get(|| async { typed("text/css; charset=utf-8", STYLE) }))
}

fn typed(kind: &'static str, body: impl IntoResponse) -> Response {
    let mut answer = body.into_response();
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    answer
}
