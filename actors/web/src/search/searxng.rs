//! An instance of SearXNG, by its JSON.

use async_trait::async_trait;
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::{
    ProviderHit, ProviderHits, SearchFailure, SearchProvider,
    request::{json, rows, send},
    web_url,
};
use crate::{ProviderOptions, codes};

pub(super) struct Searxng {
    pub(super) client: Client,
    pub(super) options: ProviderOptions,
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<Value>,
    /// Engines that did not answer the instance, each with the reason.
    #[serde(default)]
    unresponsive_engines: Vec<Value>,
}

#[derive(Deserialize)]
struct Row {
    url: String,
    title: Option<String>,
    content: Option<String>,
}

#[async_trait]
impl SearchProvider for Searxng {
    fn name(&self) -> &'static str {
        "searxng"
    }

    async fn ask(&self, query: &str, _: usize) -> Result<ProviderHits, SearchFailure> {
        let root = self.options.url.as_deref().unwrap_or_default().trim_end_matches('/');
        let asked =
            Url::parse_with_params(&format!("{root}/search"), [("q", query), ("format", "json")]);
        let url =
            asked.map_err(|error| SearchFailure::of(codes::SEARCH_FAILED, error.to_string()))?;
        let (_, body) = send(self.client.get(url)).await.map_err(explained)?;
        let answer: Answer = json(&body)?;
        if answer.results.is_empty() && !answer.unresponsive_engines.is_empty() {
            let engines = Value::Array(answer.unresponsive_engines).to_string();
            let shown: String = engines.chars().take(500).collect();
            let message = format!("none of its engines answered: {shown}");
            return Err(SearchFailure::of(codes::SEARCH_BLOCKED, message));
        }
        let hit = |row: Row| {
            let url = web_url(&row.url)?;
            let [title, snippet] = [row.title, row.content].map(Option::unwrap_or_default);
            Some(ProviderHit { title, url, snippet })
        };
        Ok(rows(answer.results, hit))
    }
}

/// An instance refuses a format that its settings do not list.
fn explained(mut failure: SearchFailure) -> SearchFailure {
    if failure.status == Some(StatusCode::FORBIDDEN) {
        failure.message += " (do its settings list `json` under `search.formats`?)";
    }
    failure
}
