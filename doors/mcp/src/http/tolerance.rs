//! Tolerance for clients that accept JSON alone, say nothing of what they accept or cut texts within a letter, and
//! errors of the protocol for bodies that rmcp refuses as HTTP.

use std::borrow::Cow;

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::StreamExt as _;
use hivekeep_door_server::line_splitter::{LineSplitter, SplitOutcome};
use hivekeep_runtime::json_text;
use serde::{Deserialize, de::IgnoredAny};

use crate::wire::refusal_of;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
/// `Accept` header that rmcp requires.
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// How a request is answered.
pub(super) struct AnswerForm {
    /// The answer alone, as JSON, where rmcp would make a stream of events.
    single: bool,
    /// The body of the request.
    asked: Bytes,
}

impl AnswerForm {
    /// Form of a request's answer; makes the request accept what rmcp answers with. Its body is in memory.
    pub(super) async fn of(request: Request) -> (Request, Self) {
        let posts = request.method() == Method::POST;
        let (mut parts, body) = request.into_parts();
        let asked = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        let asked = match json_text::mended(&asked) {
            Cow::Borrowed(_) => asked,
            Cow::Owned(mended) => mended.into(),
        };
        let single = posts && !names_events(&parts.headers);
        if posts || parts.method == Method::GET {
            parts.headers.insert(header::ACCEPT, BOTH);
        }
        (Request::from_parts(parts, Body::from(asked.clone())), Self { single, asked })
    }

    /// The answer, in that form.
    pub(super) async fn apply(self, answer: Response) -> Response {
        match answer.status() {
            StatusCode::OK if self.single && is(&answer, EVENTS) => {
                drop(self.asked);
                single(answer).await
            }
            StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE if !is(&answer, JSON) => {
                match refusal_of(&self.asked) {
                    Some(refusal) => (StatusCode::BAD_REQUEST, axum::Json(refusal)).into_response(),
                    None => answer,
                }
            }
            _ => answer,
        }
    }
}

fn names_events(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|it| it.to_str().ok());
    accepted.any(|accepted| accepted.to_ascii_lowercase().contains(EVENTS))
}

fn is(answer: &Response, kind: &str) -> bool {
    answer
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|it| it.as_bytes().starts_with(kind.as_bytes()))
}

/// The outer members of a message: an answer names no method.
#[derive(Deserialize)]
struct Outside {
    method: Option<IgnoredAny>,
}

/// The answer in a stream of events; messages before it have no place in one JSON.
async fn single(answer: Response) -> Response {
    let (mut parts, body) = answer.into_parts();
    let (mut pieces, mut lines) = (body.into_data_stream(), LineSplitter::new(usize::MAX));
    while let Some(Ok(piece)) = pieces.next().await {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let (used, outcome) = lines.feed(rest);
            rest = rest.get(used..).unwrap_or_default();
            let data = Some(lines.line()).filter(|_| outcome == SplitOutcome::Line);
            let Some(data) = data.and_then(|line| line.strip_prefix(b"data:")) else { continue };
            if serde_json::from_slice::<Outside>(data).is_ok_and(|it| it.method.is_none()) {
                let json = HeaderValue::from_static(JSON);
                parts.headers.insert(header::CONTENT_TYPE, json);
                return Response::from_parts(parts, Body::from(data.trim_ascii().to_vec()));
            }
        }
    }
    let why = "the stream of the answer ended without it";
    (StatusCode::BAD_GATEWAY, why).into_response()
}
