//! Requests to providers: one attempt, and its failure by kind.

use std::time::Duration;

use hivekeep_kernel::ToolError;
use hivekeep_runtime::json_text;
use reqwest::{
    RequestBuilder, StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ProviderHit, ProviderHits, SearchFailure};
use crate::{ProviderOptions, client, codes};

/// Longest pause that a provider may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Size of a provider's answer.
const MAX_ANSWER_BYTES: usize = 2 * 1024 * 1024;
/// Size of a key.
const MAX_KEY_BYTES: usize = 4096;

/// Sends a request to a provider and reads a good answer.
pub(super) async fn send(request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), SearchFailure> {
    let failed = |error: ToolError| SearchFailure {
        again: error.is_any(&[codes::WEB_UNREACHABLE, codes::WEB_TIMED_OUT]),
        ..SearchFailure::of(codes::SEARCH_FAILED, error.message)
    };
    let response = request.send().await.map_err(|error| failed(client::failure(&error)))?;
    let status = response.status();
    let (code, again) = match status.as_u16() {
        200..=299 => {
            let body = client::read(response, MAX_ANSWER_BYTES).await.map_err(failed)?;
            return Ok((status, body));
        }
        429 => (codes::SEARCH_BLOCKED, true),
        500..=599 => (codes::SEARCH_FAILED, true),
        _ => (codes::SEARCH_FAILED, false),
    };
    Err(SearchFailure {
        status: Some(status),
        again,
        pause: pause(response.headers()),
        ..SearchFailure::of(code, format!("it answered with {status}"))
    })
}

/// Pause in seconds that a provider asks for, bounded.
fn pause(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_PAUSE))
}

/// Reads an answer in JSON.
pub(super) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, SearchFailure> {
    json_text::from_slice(body).map_err(|error| {
        SearchFailure::of(codes::SEARCH_FAILED, format!("its answer is not as expected: {error}"))
    })
}

/// Results of a list of which not every item need be one.
pub(super) fn rows<T: DeserializeOwned>(
    items: Vec<Value>,
    hit: impl Fn(T) -> Option<ProviderHit>,
) -> ProviderHits {
    let all = items.len();
    let hits = items.into_iter().filter_map(|item| hit(serde_json::from_value(item).ok()?));
    let hits: Vec<_> = hits.collect();
    ProviderHits { left_out: all - hits.len(), hits }
}

impl ProviderOptions {
    /// Reads the provider's key.
    ///
    /// # Errors
    /// Names the place where it should be, and never the key.
    pub(crate) async fn key(&self) -> Result<Option<String>, String> {
        let (place, read) = match (&self.key_file, &self.key_env) {
            (Some(path), _) => {
                let read = tokio::fs::read_to_string(path).await;
                (path.display().to_string(), read.map_err(|error| error.to_string()))
            }
            (None, Some(name)) => (
                format!("the variable {name}"),
                std::env::var(name).map_err(|error| error.to_string()),
            ),
            (None, None) => return Ok(None),
        };
        let key = read.map_err(|error| format!("{place}: {error}"))?;
        let key = key.trim();
        match key.len() {
            1..=MAX_KEY_BYTES if key.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Ok(Some(key.to_owned()))
            }
            _ => Err(format!("{place} does not hold a valid key")),
        }
    }
}
