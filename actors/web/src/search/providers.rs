//! Providers of searches: an instance of SearXNG and Brave's API, by their JSON, and DuckDuckGo's page without
//! scripts, read by the classes of its elements.

use async_trait::async_trait;
use hivekeep_runtime::charset::{self, TextMarkup};
use html5ever::{parse_document, tendril::TendrilSink};
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use reqwest::{
    Client, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde::Deserialize;
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::{ProviderHit, ProviderHits, SearchFailure, SearchProvider, json, rows, send, web_url};
use crate::{ProviderOptions, codes, document};

/// Instance of SearXNG.
pub(super) struct Searxng {
    pub(super) client: Client,
    pub(super) options: ProviderOptions,
}

#[derive(Deserialize)]
struct SearxngAnswer {
    results: Vec<Value>,
    /// Engines that did not answer the instance, each with the reason.
    #[serde(default)]
    unresponsive_engines: Vec<Value>,
}

#[derive(Deserialize)]
struct SearxngRow {
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
        let answer: SearxngAnswer = json(&body)?;
        if answer.results.is_empty() && !answer.unresponsive_engines.is_empty() {
            let engines = Value::Array(answer.unresponsive_engines).to_string();
            let shown: String = engines.chars().take(500).collect();
            let message = format!("none of its engines answered: {shown}");
            return Err(SearchFailure::of(codes::SEARCH_BLOCKED, message));
        }
        let hit = |row: SearxngRow| {
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

const BRAVE_ADDRESS: &str = "https://api.search.brave.com/res/v1/web/search";
/// Results that the API gives at most.
const MOST_BRAVE_RESULTS: usize = 20;

/// Brave's API.
pub(super) struct Brave {
    pub(super) client: Client,
    pub(super) options: ProviderOptions,
}

#[derive(Deserialize)]
struct BraveAnswer {
    /// Absent where nothing was found.
    web: Option<BraveWeb>,
}

#[derive(Deserialize)]
struct BraveWeb {
    results: Vec<Value>,
}

#[derive(Deserialize)]
struct BraveRow {
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
        let count = most.min(MOST_BRAVE_RESULTS).to_string();
        let parameters = [("q", query), ("count", &count), ("text_decorations", "false")];
        let address = self.options.url.as_deref().unwrap_or(BRAVE_ADDRESS);
        let asked = Url::parse_with_params(address, parameters);
        let url =
            asked.map_err(|error| SearchFailure::of(codes::SEARCH_FAILED, error.to_string()))?;
        let request = self.client.get(url).header("X-Subscription-Token", key);
        let (_, body) = send(request.header("Accept", "application/json")).await?;
        let answer: BraveAnswer = json(&body)?;
        let hit = |row: BraveRow| {
            let url = web_url(&row.url)?;
            let [title, snippet] =
                [row.title, row.description].map(|html| text_of(&html.unwrap_or_default()));
            Some(ProviderHit { title, url, snippet })
        };
        Ok(rows(answer.web.map(|web| web.results).unwrap_or_default(), hit))
    }
}

const DUCKDUCKGO_ADDRESS: &str = "https://html.duckduckgo.com/html/";

/// DuckDuckGo's page.
pub(super) struct DuckDuckGo {
    pub(super) client: Client,
    pub(super) options: ProviderOptions,
}

#[async_trait]
impl SearchProvider for DuckDuckGo {
    fn name(&self) -> &'static str {
        "duckduckgo"
    }

    async fn ask(&self, query: &str, _: usize) -> Result<ProviderHits, SearchFailure> {
        let form = form_urlencoded::Serializer::new(String::new()).append_pair("q", query).finish();
        let address = self.options.url.as_deref().unwrap_or(DUCKDUCKGO_ADDRESS);
        let request = self.client.post(address).body(form);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let (status, body) = send(request).await?;
        read(status, &charset::decode_page(&body, None, TextMarkup::Html).text)
    }
}

/// Reads the page. Results are looked for first: the query, which a page repeats, may name the marks of a
/// challenge.
fn read(status: StatusCode, html: &str) -> Result<ProviderHits, SearchFailure> {
    let failed = |why: String| SearchFailure::of(codes::SEARCH_FAILED, why);
    document::check(html).map_err(|error| failed(error.message))?;
    let (mut hits, mut says_none, mut challenge) =
        (Vec::new(), false, status == StatusCode::ACCEPTED);
    // Its end takes the nodes apart.
    let page = parse(html);
    for element in elements(&page) {
        let classes = attribute(&element, "class").unwrap_or_default();
        let has = |class: &str| classes.split_whitespace().any(|one| one == class);
        if has("result__a") {
            let target = attribute(&element, "href").and_then(|href| target(&href));
            hits.push(target.map(|url| ProviderHit {
                title: text(&element),
                url,
                snippet: String::new(),
            }));
        } else if has("result__snippet")
            && let Some(Some(hit)) = hits.last_mut()
        {
            hit.snippet = text(&element);
        }
        says_none |= has("no-results");
        challenge |= classes.starts_with("anomaly-modal")
            || attribute(&element, "id").is_some_and(|id| id == "challenge-form");
    }
    let hits: Vec<_> = hits.into_iter().flatten().collect();
    match (hits.is_empty(), says_none, challenge) {
        // Advertisements are no results.
        (false, ..) | (true, true, false) => Ok(ProviderHits { hits, left_out: 0 }),
        (true, _, true) => Err(SearchFailure::of(
            codes::SEARCH_BLOCKED,
            format!("it asks for proof that a person searches ({status})"),
        )),
        (true, false, false) => {
            Err(failed("its page has neither results nor says that there are none".to_owned()))
        }
    }
}

/// URL that a result leads to; none for an advertisement.
fn target(href: &str) -> Option<String> {
    let url = Url::parse(DUCKDUCKGO_ADDRESS).ok()?.join(href).ok()?;
    let own = url
        .domain()
        .is_some_and(|name| name == "duckduckgo.com" || name.ends_with(".duckduckgo.com"));
    match url.path() {
        "/l/" if own => {
            let (_, target) = url.query_pairs().find(|(name, _)| name == "uddg")?;
            web_url(&target)
        }
        "/y.js" if own => None,
        _ => web_url(url.as_str()),
    }
}

/// Text of a piece of HTML.
fn text_of(html: &str) -> String {
    if !html.contains(['<', '&']) || document::check(html).is_err() {
        return html.to_owned();
    }
    let piece = parse(html);
    text(&piece.document)
}

fn parse(html: &str) -> RcDom {
    parse_document(RcDom::default(), Default::default()).one(html)
}

/// Elements of a page in their order.
fn elements(page: &RcDom) -> Vec<Handle> {
    let mut found = Vec::new();
    walk(&page.document, |node| {
        if matches!(node.data, NodeData::Element { .. }) {
            found.push(node.clone());
        }
    });
    found
}

fn text(node: &Handle) -> String {
    let mut found = String::new();
    walk(node, |node| {
        if let NodeData::Text { contents } = &node.data {
            found.push_str(&contents.borrow());
        }
    });
    found
}

/// Visits a node and all below it in their order, without recursion.
fn walk(node: &Handle, mut visit: impl FnMut(&Handle)) {
    let mut open = vec![node.clone()];
    while let Some(node) = open.pop() {
        visit(&node);
        open.extend(node.children.borrow().iter().rev().cloned());
    }
}

fn attribute(element: &Handle, name: &str) -> Option<String> {
    let NodeData::Element { attrs, .. } = &element.data else { return None };
    let attrs = attrs.borrow();
    attrs.iter().find(|attr| &*attr.name.local == name).map(|attr| attr.value.to_string())
}
