//! Lists of sandboxes: filtered, ordered, in pages.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::{Query, State},
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;

use super::sandbox::Sandbox;
use crate::{
    error::E2bError,
    state::{E2b, Owner},
};

/// Rows of a page.
const PAGE: usize = 100;

/// Sandboxes that are wanted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in super::super) struct ListQuery {
    /// `key=value&...`, whose keys and values are percent-encoded before it is made.
    metadata: Option<String>,
    /// `running`, `paused`, or both with a comma.
    state: Option<String>,
    order: Option<String>,
    started_after: Option<DateTime<Utc>>,
    template: Option<String>,
    limit: Option<usize>,
    next_token: Option<String>,
}

impl ListQuery {
    fn metadata(&self) -> BTreeMap<String, String> {
        let text = self.metadata.as_deref().unwrap_or_default();
        let decoded = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let pairs = url::form_urlencoded::parse(text.as_bytes());
        pairs.map(|(name, value)| (decoded(&name), decoded(&value))).collect()
    }

    /// Rows that are wanted, in their order.
    fn filter(&self, mut all: Vec<Sandbox>) -> Result<Vec<Sandbox>, E2bError> {
        let states: Vec<_> = self.state.iter().flat_map(|text| text.split(',')).collect();
        if let Some(other) = states.iter().find(|state| !["running", "paused"].contains(state)) {
            return Err(E2bError::invalid(format!("`{other}` is not a state of a sandbox")));
        }
        let metadata = self.metadata();
        all.retain(|sandbox| {
            let state = if sandbox.is_running() { "running" } else { "paused" };
            let has = sandbox.metadata();
            (states.is_empty() || states.contains(&state))
                && metadata.iter().all(|(name, value)| has.get(&**name) == Some(&&**value))
                && self.started_after.is_none_or(|after| sandbox.created_at >= after)
                && self.template.as_deref().is_none_or(|template| sandbox.template() == template)
        });
        all.sort_by(|one, other| (one.created_at, &one.name).cmp(&(other.created_at, &other.name)));
        match self.order.as_deref() {
            Some("asc") => {}
            None | Some("desc") => all.reverse(),
            Some(other) => return Err(E2bError::invalid(format!("`{other}` is not an order"))),
        }
        Ok(all)
    }
}

/// A page of rows, and the token of the next page.
pub(super) fn page<T>(
    mut all: Vec<T>,
    name: impl Fn(&T) -> String,
    after: Option<&str>,
    limit: Option<usize>,
) -> (Vec<T>, Option<String>) {
    if let Some(at) = after.and_then(|after| all.iter().position(|row| name(row) == after)) {
        all.drain(..=at);
    }
    let limit = limit.unwrap_or(PAGE).clamp(1, PAGE);
    let more = all.len() > limit;
    all.truncate(limit);
    let next = all.last().filter(|_| more).map(name);
    (all, next)
}

/// An answer with the token of the next page.
pub(super) fn paged(rows: Vec<Value>, next: Option<String>) -> Response {
    let mut headers = HeaderMap::new();
    if let Some(next) = next.and_then(|next| next.parse().ok()) {
        headers.insert("x-next-token", next);
    }
    (headers, Json(rows)).into_response()
}

/// `GET /v2/sandboxes`.
pub(in super::super) async fn list_v2(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Query(query): Query<ListQuery>,
) -> Result<Response, E2bError> {
    let all = query.filter(e2b.sandboxes(&owner).await?)?;
    let name = |sandbox: &Sandbox| sandbox.name.clone();
    let (rows, next) = page(all, name, query.next_token.as_deref(), query.limit);
    Ok(paged(rows.iter().map(Sandbox::row).collect(), next))
}

/// `GET /sandboxes`: those that run.
pub(in super::super) async fn list(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Query(query): Query<ListQuery>,
) -> Result<Json<Vec<Value>>, E2bError> {
    let running = ListQuery { state: Some("running".to_owned()), ..query };
    let all = running.filter(e2b.sandboxes(&owner).await?)?;
    Ok(Json(all.iter().map(Sandbox::row).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_on_where_the_last_ended() {
        let page = |after, limit| page(vec!["a", "b", "c"], |it| (*it).to_owned(), after, limit);
        assert_eq!(page(None, Some(2)), (vec!["a", "b"], Some("b".to_owned())));
        assert_eq!(page(Some("b"), Some(2)), (vec!["c"], None));
        assert_eq!(page(None, None), (vec!["a", "b", "c"], None));
        assert_eq!(page(Some("c"), None), (vec![], None));
    }

    #[test]
    fn metadata_are_decoded_as_the_sdks_encode_them() {
        // Queries that both SDKs make of these metadata: Python by `urlencode` after `quote`, JavaScript by
        // `URLSearchParams` after `encodeURIComponent`.
        for (name, value, python, javascript) in [
            ("a b", "c&d", "a%2520b=c%2526d", "a%2520b=c%2526d"),
            ("owner", "ann@x.org", "owner=ann%2540x.org", "owner=ann%2540x.org"),
            ("é", "100%+1", "%25C3%25A9=100%2525%252B1", "%25C3%25A9=100%2525%252B1"),
            ("path", "a/b", "path=a%2Fb", "path=a%252Fb"),
            ("plain", "x", "plain=x", "plain=x"),
        ] {
            for text in [python, javascript] {
                let query = ListQuery { metadata: Some(text.to_owned()), ..Default::default() };
                let read = query.metadata();
                assert_eq!(read, BTreeMap::from([(name.to_owned(), value.to_owned())]), "{text}");
            }
        }
    }
}
