//! DuckDuckGo's page without scripts, read by the classes of its elements.

use async_trait::async_trait;
use hivekeep_runtime::charset::{self, TextMarkup};
use html5ever::{parse_document, tendril::TendrilSink};
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use reqwest::{Client, StatusCode, header::CONTENT_TYPE};
use url::{Url, form_urlencoded};

use super::{ProviderHit, ProviderHits, SearchFailure, SearchProvider, request::send, web_url};
use crate::{ProviderOptions, codes, markup};

const ADDRESS: &str = "https://html.duckduckgo.com/html/";

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
        let address = self.options.url.as_deref().unwrap_or(ADDRESS);
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
    markup::check(html).map_err(|error| failed(error.message))?;
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
    let url = Url::parse(ADDRESS).ok()?.join(href).ok()?;
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
pub(super) fn text_of(html: &str) -> String {
    if !html.contains(['<', '&']) || markup::check(html).is_err() {
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
