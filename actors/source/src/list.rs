//! List of a server's tools, page by page: what of it is not valid is left out, and what came is kept,
//! in one event-sourced stream per server, `source/NAME`.

use std::collections::HashSet;

use hivekeep_runtime::log::Sourced;
use rmcp::{
    RoleClient, ServiceError,
    model::{
        ClientRequest, CustomResult, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool,
    },
    service::Peer,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::declare::{MAX_TOOLS, RejectedTool};

/// Most pages of a list.
const MAX_PAGES: usize = 64;
/// Longest name of what is left out, and longest reason.
const NAME_CHARS: usize = 80;
const WHY_CHARS: usize = 300;

/// Size of a piece of a record.
const PIECE_BYTES: usize = 256 * 1024;

/// Tools as a server lists them.
#[derive(Debug, Default)]
pub(crate) struct ListedTools {
    pub(crate) tools: Vec<Tool>,
    pub(crate) left_out: Vec<RejectedTool>,
}

/// A page of a list, and the cursor of the next one.
type ToolPage = (Vec<Result<Tool, RejectedTool>>, Option<String>);

/// Asks for all pages, as far as they go.
///
/// # Errors
/// When there is no first page.
pub(crate) async fn list(peer: &Peer<RoleClient>) -> Result<ListedTools, ServiceError> {
    let (mut all, mut cursor, mut asked) = (ListedTools::default(), None, HashSet::new());
    for nth in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let (items, next) = match peer.send_request(request).await.and_then(page) {
            Ok(page) => page,
            Err(error) if nth == 0 => return Err(error),
            Err(error) => return Ok(all.cut(&error.to_string())),
        };
        for item in items {
            if all.tools.len() == MAX_TOOLS {
                return Ok(all.cut(&format!("it lists more than {MAX_TOOLS} tools")));
            }
            all.add(item);
        }
        cursor = match next {
            None => return Ok(all),
            Some(next) if !asked.insert(next.clone()) => {
                return Ok(all.cut("its list begins again with a cursor that it gave before"));
            }
            next => next,
        };
    }
    Ok(all.cut(&format!("its list has more than {MAX_PAGES} pages")))
}

impl ListedTools {
    /// Adds an item, unless the same was listed before.
    fn add(&mut self, item: Result<Tool, RejectedTool>) {
        match item {
            Ok(tool) if !self.tools.contains(&tool) => self.tools.push(tool),
            Ok(_) => {}
            Err(left_out) if self.left_out.len() < MAX_TOOLS => self.left_out.push(left_out),
            Err(_) => {}
        }
    }

    /// Tools that came before the list was cut short, with the reason of that.
    fn cut(mut self, why: &str) -> Self {
        let raw_name = "the rest of its list".to_owned();
        self.left_out.push(RejectedTool { raw_name, why: why.chars().take(WHY_CHARS).collect() });
        self
    }
}

fn page(answer: ServerResult) -> Result<ToolPage, ServiceError> {
    match answer {
        ServerResult::ListToolsResult(page) => {
            Ok((page.tools.into_iter().map(Ok).collect(), page.next_cursor))
        }
        // A page with an item of another shape.
        ServerResult::CustomResult(CustomResult(mut page)) if page["tools"].is_array() => {
            let next = page["nextCursor"].as_str().map(str::to_owned);
            let Value::Array(items) = page["tools"].take() else {
                return Err(ServiceError::UnexpectedResponse);
            };
            Ok((items.into_iter().zip(1..).map(|(item, nth)| tool(item, nth)).collect(), next))
        }
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

fn tool(item: Value, nth: usize) -> Result<Tool, RejectedTool> {
    let name = item["name"].as_str().map(|name| name.chars().take(NAME_CHARS).collect());
    serde_json::from_value(item).map_err(|error| RejectedTool {
        raw_name: name.unwrap_or_else(|| format!("tool {nth} of a page")),
        why: format!("it is not valid: {:.*}", WHY_CHARS, error.to_string()),
    })
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum ListRecord {
    /// The server listed these tools, other than before.
    Listed { tools: Vec<Tool> },
}

/// Tools as the server listed them last.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct LastList(pub(crate) Vec<Tool>);

impl Sourced for LastList {
    const KIND: &'static str = "source";
    const FOLD_EVERY: usize = 4;
    const PIECE_BYTES: Option<usize> = Some(PIECE_BYTES);
    type Record = ListRecord;

    fn begin(record: ListRecord) -> Result<Self, ListRecord> {
        let ListRecord::Listed { tools } = record;
        Ok(Self(tools))
    }

    fn apply(&mut self, record: ListRecord) -> Result<(), ListRecord> {
        let ListRecord::Listed { tools } = record;
        self.0 = tools;
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_bad_item_costs_itself_alone() {
        let good = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
        let bad = [
            json!(null),
            json!("x"),
            json!({ "name": "no_schema" }),
            json!({ "name": 7, "inputSchema": { "type": "object" } }),
            json!({ "name": "hint", "inputSchema": {}, "annotations": { "readOnlyHint": "yes" } }),
        ];
        for more in [json!({}), json!({ "resultType": "complete" })] {
            let mut list = json!({ "tools": [good("a")], "nextCursor": "c" });
            let tools = list["tools"].as_array_mut().expect("a list");
            tools.extend(bad.clone());
            tools.push(good("b"));
            list.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
            let answer: ServerResult = serde_json::from_value(list).expect("an answer");
            let (items, next) = page(answer).expect("a page");
            let mut all = ListedTools::default();
            items.into_iter().for_each(|item| all.add(item));
            let names: Vec<_> = all.tools.iter().map(|tool| tool.name.as_ref()).collect();
            assert_eq!((names, next.as_deref()), (vec!["a", "b"], Some("c")));
            let names: Vec<_> = all.left_out.iter().map(|one| one.raw_name.as_str()).collect();
            let unnamed = ["tool 2 of a page", "tool 3 of a page"];
            assert_eq!(names[..2], unnamed);
            assert_eq!(names[2..], ["no_schema", "tool 5 of a page", "hint"]);
            assert!(all.left_out[2].why.contains("inputSchema"), "{all:?}");
        }
        let mut again = ListedTools::default();
        for _ in 0..2 {
            again.add(tool(good("a"), 1));
        }
        assert_eq!(again.tools.len(), 1, "a page that comes twice is one");
        let other: ServerResult = serde_json::from_value(json!({ "tools": 7 })).expect("an answer");
        assert!(page(other).is_err());
    }
}
