//! `webview_query`.

use std::collections::BTreeMap;

use futures::future::join_all;
use hivekeep_kernel::{CallCx, ToolError, serve::Reply, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    act::{MAX_SECS, act},
    browser::Browser,
    page::{LivePage, MAX_SELECTOR},
};

/// Elements of one answer.
const MOST: usize = 100;

fn default_query_secs() -> u64 {
    10
}

/// Look up elements by a CSS selector, also in open shadow roots and frames of the same origin: their attributes,
/// text and place.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    /// CSS selector.
    #[schemars(length(min = 1, max = MAX_SELECTOR))]
    pub(crate) selector: String,
    /// Whether all matches are returned, at most 100. Default: the first.
    #[serde(default)]
    pub(crate) all: bool,
    /// Time limit, 1 to 120.
    #[schemars(range(min = 1, max = MAX_SECS))]
    #[serde(default = "default_query_secs")]
    pub(crate) timeout_secs: u64,
}

/// Place in the page's window, in CSS pixels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BoundingBox {
    /// From its left.
    pub(crate) x: f64,
    /// From its top.
    pub(crate) y: f64,
    /// Width.
    pub(crate) width: f64,
    /// Height.
    pub(crate) height: f64,
}

/// An element.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ElementInfo {
    /// Node; `eN` of it is a reference for the other tools.
    #[serde(default)]
    pub(crate) node_id: u64,
    /// Name of its tag.
    pub(crate) tag_name: String,
    /// Attributes.
    pub(crate) attributes: BTreeMap<String, String>,
    /// How its text begins.
    pub(crate) text: String,
    /// Whether it can be seen.
    pub(crate) visible: bool,
    /// Where it is.
    pub(crate) bounding_box: BoundingBox,
}

/// Elements that match a selector.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueryFound {
    /// Whether anything matches.
    pub(crate) found: bool,
    /// Number of elements in `elements`.
    pub(crate) count: usize,
    /// Elements, in the order of the page.
    pub(crate) elements: Vec<ElementInfo>,
    /// Number of matches, where it is larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<usize>,
}

tools! { pub(crate) FAMILY: "browser" for Browser, singleton browsers;
    webview_query: Query => QueryFound = Browser::query {
        title: "Look up elements", effect: Read, open_world: true,
    };
}

impl Browser {
    fn query(&mut self, cx: &CallCx, input: Query) -> Result<Reply<QueryFound>, ToolError> {
        Ok(act(self, cx, input.timeout_secs, move |page, _| query(page, input)))
    }
}

async fn query(page: LivePage, input: Query) -> Result<QueryFound, ToolError> {
    let most = if input.all { MOST } else { 1 };
    loop {
        if let Some(found) = looked_up(&page, &input.selector, most).await? {
            return Ok(found);
        }
        // The document went away meanwhile.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn looked_up(
    page: &LivePage,
    selector: &str,
    most: usize,
) -> Result<Option<QueryFound>, ToolError> {
    let args = json!({ "selector": selector, "most": most });
    let Some(list) = page.run("elements", args, None, false).await? else { return Ok(None) };
    let Some(handle) = list["objectId"].as_str() else { return Ok(None) };
    let Some(infos) = page.run("((_, list) => info(list))", json!({}), Some(handle), true).await?
    else {
        return Ok(None);
    };
    let decoded = serde_json::from_value(infos["value"].clone());
    let mut elements: Vec<ElementInfo> =
        decoded.map_err(|error| ToolError::internal(format!("elements: {error}")))?;
    let params = json!({ "objectId": handle, "ownProperties": true });
    let properties: Value = page.call("Runtime.getProperties", params).await?;
    let items = properties["result"].as_array().map(Vec::as_slice).unwrap_or_default();
    let handles = items.iter().filter(|item| item["enumerable"] == true);
    let nodes = handles
        .filter_map(|item| item["value"]["objectId"].as_str())
        .map(|object| page.call::<Value>("DOM.describeNode", json!({ "objectId": object })));
    for (element, node) in elements.iter_mut().zip(join_all(nodes).await) {
        element.node_id = node?["node"]["backendNodeId"].as_u64().unwrap_or_default();
    }
    let _released: Value =
        page.call("Runtime.releaseObject", json!({ "objectId": handle })).await?;
    let args = json!({ "selector": selector });
    let total = page.script::<usize>("count", args).await?;
    let count = elements.len();
    let total = total.filter(|total| *total > count);
    Ok(Some(QueryFound { found: count > 0, count, elements, total }))
}
