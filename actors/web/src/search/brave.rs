//! Brave's search API.

use async_trait::async_trait;
use reqwest::{Client, header::HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::{
    ProviderHit, ProviderHits, SearchFailure, SearchProvider,
    duckduckgo::text_of,
    request::{json, rows, send},
    web_url,
};
use crate::{ProviderOptions, codes};

const ADDRESS: &str = "https://api.search.brave.com/res/v1/web/search";
/// Results that the API gives at most.
const MOST: usize = 20;

pub(super) struct Brave {
    pub(super) client: Client,
    pub(super) options: ProviderOptions,
}

#[derive(Deserialize)]
struct Answer {
    /// Absent where nothing was found.
    web: Option<Web>,
}

#[derive(Deserialize)]
struct Web {
    results: Vec<Value>,
}

#[derive(Deserialize)]
struct Row {
    url: String,
    title: Option<String>,
    description: Option<String>,
}

#[async_trait]
impl SearchProvider for Brave {
    fn name(&self) -> &'static str {
        "brave"
    }

    async fn ask(&self, query: &str, most: usize) -> Result<ProviderHits, SearchFailure> {
        let unkeyed =
            |why| SearchFailure::of(codes::SEARCH_NOT_CONFIGURED, format!("its key: {why}"));
        let key = self.options.key().await.map_err(unkeyed)?.unwrap_or_default();
        let mut key = HeaderValue::from_str(&key).map_err(|error| unkeyed(error.to_string()))?;
        key.set_sensitive(true);
        let count = most.min(MOST).to_string();
        let parameters = [("q", query), ("count", &count), ("text_decorations", "false")];
        let address = self.options.url.as_deref().unwrap_or(ADDRESS);
        let asked = Url::parse_with_params(address, parameters);
        let url =
            asked.map_err(|error| SearchFailure::of(codes::SEARCH_FAILED, error.to_string()))?;
        let request = self.client.get(url).header("X-Subscription-Token", key);
        let (_, body) = send(request.header("Accept", "application/json")).await?;
        let answer: Answer = json(&body)?;
        let hit = |row: Row| {
            let url = web_url(&row.url)?;
            let [title, snippet] =
                [row.title, row.description].map(|html| text_of(&html.unwrap_or_default()));
            Some(ProviderHit { title, url, snippet })
        };
        Ok(rows(answer.web.map(|web| web.results).unwrap_or_default(), hit))
    }
}
