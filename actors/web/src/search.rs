//! Search front end: one port, the provider behind it chosen by configuration, with retries by the kind of
//! a failure and a fallback to the next provider, all within one time limit.

mod providers;

use std::time::Duration;

use async_trait::async_trait;
use backon::{ExponentialBuilder, Retryable};
use hivekeep_kernel::{ErrorCode, Layer, ToolError};
use hivekeep_runtime::json_text;
use reqwest::{
    Client, RequestBuilder, StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use crate::{Options, ProviderKind, ProviderOptions, client, codes, egress::MAX_URL_BYTES};
use providers::{Brave, DuckDuckGo, Searxng};

/// Attempts at one provider.
const ATTEMPTS: usize = 3;
/// Pause before the second attempt; doubled for the third.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_TITLE_CHARS: usize = 300;
const MAX_SNIPPET_CHARS: usize = 1000;

/// A page that a provider found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderHit {
    pub(crate) title: String,
    pub(crate) url: String,
    pub(crate) snippet: String,
}

/// Parsed answer of a provider.
#[derive(Debug, Default)]
pub(crate) struct ProviderHits {
    pub(crate) hits: Vec<ProviderHit>,
    /// Items of the provider's list that are not results, or lead to no page of the web.
    pub(crate) left_out: usize,
}

/// Port to something that searches the web.
#[async_trait]
pub(crate) trait SearchProvider: Send + Sync {
    /// Name as results have it.
    fn name(&self) -> &'static str;

    /// Asks once.
    ///
    /// # Errors
    /// An empty list is a success only if the provider itself says that there is nothing.
    async fn ask(&self, query: &str, most: usize) -> Result<ProviderHits, SearchFailure>;
}

/// The reason why a provider gave no results.
#[derive(Debug, Clone)]
pub(crate) struct SearchFailure {
    pub(crate) code: &'static ErrorCode,
    pub(crate) message: String,
    /// Status that was answered, if it was not a good one.
    status: Option<StatusCode>,
    /// Whether another attempt makes sense.
    again: bool,
    /// Pause that the provider asks for.
    pause: Option<Duration>,
}

impl SearchFailure {
    /// A failure that another attempt does not change.
    pub(crate) fn of(code: &'static ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), status: None, again: false, pause: None }
    }
}

/// An answered search.
pub(crate) struct SearchAnswer {
    pub(crate) provider: &'static str,
    pub(crate) hits: Vec<ProviderHit>,
    pub(crate) left_out: usize,
    /// Providers that were asked before, in vain.
    pub(crate) failed: Vec<(&'static str, SearchFailure)>,
}

/// Front end of all providers.
pub(crate) struct Searcher {
    providers: Vec<Box<dyn SearchProvider>>,
    limit: Duration,
}

impl Searcher {
    pub(crate) fn new(options: &Options, client: &Client) -> Self {
        let provider = |options: &ProviderOptions| -> Box<dyn SearchProvider> {
            let (client, options) = (client.clone(), options.clone());
            match options.kind {
                ProviderKind::Searxng => Box::new(Searxng { client, options }),
                ProviderKind::Brave => Box::new(Brave { client, options }),
                ProviderKind::Duckduckgo => Box::new(DuckDuckGo { client, options }),
            }
        };
        Self {
            providers: options.providers.iter().map(provider).collect(),
            limit: Duration::from_secs(options.search_timeout_secs),
        }
    }

    /// Asks one provider after the other.
    ///
    /// # Errors
    /// `search_not_configured`, `web_timed_out`, and the last provider's failure with those before it.
    pub(crate) async fn search(&self, query: &str, most: usize) -> Result<SearchAnswer, ToolError> {
        if self.providers.is_empty() {
            let message = "no provider of searches is configured";
            return Err(ToolError::new(Layer::Actor, codes::SEARCH_NOT_CONFIGURED, message).next(
                "ask the operator for a `[[web.providers]]` table with `kind` searxng, brave or duckduckgo",
            ));
        }
        let answer = tokio::time::timeout(self.limit, self.first_answer(query, most));
        answer.await.unwrap_or_else(|_| {
            let message = format!("no provider answered within {} s", self.limit.as_secs());
            Err(ToolError::new(Layer::Actor, codes::WEB_TIMED_OUT, message).retryable())
        })
    }

    async fn first_answer(&self, query: &str, most: usize) -> Result<SearchAnswer, ToolError> {
        let mut failed = Vec::new();
        for provider in &self.providers {
            match insist(provider.as_ref(), query, most).await {
                Ok(ProviderHits { hits, left_out }) => {
                    let hits = hits.into_iter().take(most).map(bounded).collect();
                    return Ok(SearchAnswer { provider: provider.name(), hits, left_out, failed });
                }
                Err(failure) => failed.push((provider.name(), failure)),
            }
        }
        Err(unanswered(&failed))
    }
}

/// Asks a provider again while that makes sense.
async fn insist(
    provider: &dyn SearchProvider,
    query: &str,
    most: usize,
) -> Result<ProviderHits, SearchFailure> {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE)
        .with_max_times(ATTEMPTS - 1)
        .with_jitter();
    (|| provider.ask(query, most))
        .retry(pauses)
        .when(|failure: &SearchFailure| failure.again)
        .adjust(|failure, pause| pause.map(|pause| failure.pause.unwrap_or(pause)))
        .await
}

fn unanswered(failed: &[(&'static str, SearchFailure)]) -> ToolError {
    let texts: Vec<_> =
        failed.iter().map(|(name, why)| format!("{name}: {}", why.message)).collect();
    let code = failed.last().map_or(codes::SEARCH_FAILED, |(_, failure)| failure.code);
    let error = ToolError::new(Layer::Actor, code, texts.join("; "));
    match failed.iter().any(|(_, failure)| failure.again || failure.code == codes::SEARCH_BLOCKED) {
        true => {
            error.retryable().next("wait some minutes, or ask the operator for another provider")
        }
        false => error.next("ask the operator to look at `web.providers`"),
    }
}

fn bounded(hit: ProviderHit) -> ProviderHit {
    let cut = |text: &str, most: usize| {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        words.chars().take(most).collect()
    };
    ProviderHit {
        title: cut(&hit.title, MAX_TITLE_CHARS),
        snippet: cut(&hit.snippet, MAX_SNIPPET_CHARS),
        url: hit.url,
    }
}

/// URL of a hit, if it is one of the web.
pub(crate) fn web_url(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let fits = matches!(url.scheme(), "http" | "https");
    (fits && url.as_str().len() <= MAX_URL_BYTES).then(|| url.into())
}

/// Longest pause that a provider may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Size of a provider's answer.
const MAX_ANSWER_BYTES: usize = 2 * 1024 * 1024;
/// Size of a key.
const MAX_KEY_BYTES: usize = 4096;

/// Sends a request to a provider and reads a good answer.
async fn send(request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), SearchFailure> {
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
fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, SearchFailure> {
    json_text::from_slice(body).map_err(|error| {
        SearchFailure::of(codes::SEARCH_FAILED, format!("its answer is not as expected: {error}"))
    })
}

/// Results of a list of which not every item need be one.
fn rows<T: DeserializeOwned>(
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
