//! The tools of a view as MCP lists them, made once and handed out in pages.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hasher,
};

use hivekeep_registry::{Catalogue, ToolView, mcp_tool};
use rmcp::{ErrorData, model::Tool};

/// Tools in one page: all there are, for clients that ask for no second one.
const PAGE: usize = 200;
/// Prefix of a cursor; clients must not make sense of it.
const CURSOR: &str = "from-";

/// Loaded and denied tools, by which a session's list differs from its view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListingScope {
    /// Families that the session has loaded.
    pub loaded: BTreeSet<String>,
    /// Tools that a policy denies the session whatever the input.
    pub denied: BTreeSet<&'static str>,
    /// Generation of the catalogue that the denied tools were judged on.
    pub generation: u64,
}

/// The list of one view.
#[derive(Debug)]
pub struct ToolListing {
    scope: ListingScope,
    tools: Vec<Tool>,
    places: HashMap<String, usize>,
    digest: String,
}

impl ToolListing {
    /// The list of a view, within a scope.
    pub fn of(catalogue: &Catalogue, view: &ToolView, scope: &ListingScope) -> Self {
        let listed = catalogue.visible(view).filter(|entry| {
            view.lists(entry.spec, &scope.loaded) && !scope.denied.contains(entry.name())
        });
        // Not for security: it tells one build's list from another's.
        let mut hasher = std::hash::DefaultHasher::new();
        let tools: Vec<Tool> = listed
            .map(|entry| {
                let tool = mcp_tool(entry, view);
                hasher.write(tool.to_string().as_bytes());
                serde_json::from_value(tool).expect("the catalogue's listing is MCP's own shape")
            })
            .collect();
        let places =
            tools.iter().enumerate().map(|(at, tool)| (tool.name.to_string(), at)).collect();
        let digest = format!("{:016x}", hasher.finish());
        Self { scope: scope.clone(), tools, places, digest }
    }

    /// True when it is the list of this scope.
    pub fn is_of(&self, scope: &ListingScope) -> bool {
        self.scope == *scope
    }

    /// Another digest means another list.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The tool of a listed name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.places.get(name).map(|at| &self.tools[*at])
    }

    /// The page at a cursor, and the cursor of the next one.
    pub fn page(&self, cursor: Option<&str>) -> Result<(Vec<Tool>, Option<String>), ErrorData> {
        let from = match cursor {
            None => 0,
            Some(cursor) => cursor
                .strip_prefix(CURSOR)
                .and_then(|at| at.parse().ok())
                .filter(|at| *at < self.tools.len())
                .ok_or_else(|| {
                    ErrorData::invalid_params("unknown cursor: list from the start", None)
                })?,
        };
        let to = (from + PAGE).min(self.tools.len());
        let next = (to < self.tools.len()).then(|| format!("{CURSOR}{to}"));
        Ok((self.tools[from..to].to_vec(), next))
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::JsonObject;

    use super::*;

    #[test]
    fn pages_hold_every_tool_once_and_a_made_up_cursor_is_refused() {
        let names: Vec<_> = (0..250).map(|n| format!("tool_{n}")).collect();
        let listing = ToolListing {
            scope: ListingScope::default(),
            tools: names.iter().map(|it| Tool::new(it.clone(), "", JsonObject::new())).collect(),
            places: HashMap::new(),
            digest: String::new(),
        };
        let (mut seen, mut cursor, mut pages) = (Vec::new(), None, 0);
        loop {
            let (tools, next) = listing.page(cursor.as_deref()).expect("a page");
            seen.extend(tools.into_iter().map(|tool| tool.name.into_owned()));
            pages += 1;
            match next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        assert_eq!((seen, pages), (names, 2));
        for cursor in ["from-250", "from--1", "nowhere", ""] {
            assert!(listing.page(Some(cursor)).is_err(), "{cursor}");
        }
    }
}
