//! A listing that begins with a day's tools and grows by the toolsets that the session loads.
//!
//! What the session has loaded is in its own log, so that the listing is the same when its client
//! attaches again, to this daemon or to the next.

use std::{collections::BTreeSet, sync::Arc};

use hivekeep_door_server::listing::ToolListing;
use hivekeep_registry::SmallListing;
use rmcp::{
    RoleServer,
    service::{Peer, SubscriptionContext},
};
use tokio::sync::watch::{Receiver, error::RecvError};
use tokio_util::sync::CancellationToken;

use super::McpHandler;

/// The toolset that is a listing of this kind.
pub const AUTO: &str = "auto";

/// Tools that the listing begins with: commands, files, workspaces and their snapshots, and the tools to find
/// and load all others. A test holds the listing at 24 KB.
const DAY: [&str; 20] = [
    "aegis.tools.search",
    "tool_describe",
    "toolset_load",
    "artifact_read",
    "workspace_create",
    "workspace_list",
    "workspace_info",
    "workspace_destroy",
    "exec",
    "exec_background",
    "read",
    "patch",
    "file_write",
    "file_edit",
    "file_list",
    "fs.grep",
    "fs.glob",
    "git_clone",
    "snapshot",
    "workspace_fork",
];

/// Receivers of what changes a listing: toolsets that are loaded, rules, and tools of sources.
struct ListChanges {
    loaded: Option<Receiver<BTreeSet<String>>>,
    rules: Receiver<u64>,
    tools: Receiver<u64>,
}

impl ListChanges {
    /// Waits for a change.
    async fn next(&mut self) -> Result<(), RecvError> {
        let loaded = async {
            match &mut self.loaded {
                None => std::future::pending().await,
                Some(loaded) => loaded.changed().await,
            }
        };
        tokio::select! {
            changed = loaded => changed,
            changed = self.rules.changed() => changed,
            changed = self.tools.changed() => changed,
        }
    }
}

/// The families that a client may call, and the beginning of its listing: with `auto` all of them, and the
/// day's tools beside the families that it names.
pub fn small_listing(toolset: Option<Vec<String>>) -> (Option<Vec<String>>, Option<SmallListing>) {
    let is_auto = |name: &String| name.trim().eq_ignore_ascii_case(AUTO);
    match toolset {
        Some(names) if names.iter().any(is_auto) => {
            let toolsets = names.into_iter().filter(|name| !is_auto(name)).collect();
            (None, Some(SmallListing { tools: DAY.to_vec(), toolsets }))
        }
        names => (names, None),
    }
}

impl McpHandler {
    /// The list as it is now.
    pub(super) fn listing(&self) -> Arc<ToolListing> {
        let last = self.0.listing.load_full();
        let loaded = self.0.loaded.as_ref().map(|loaded| loaded.borrow().clone());
        let caller = self.0.origin.caller(self.0.door);
        let scope = self.0.core.scope(&self.0.view, caller, loaded.unwrap_or_default());
        if last.is_of(&scope) {
            return last;
        }
        let listing = self.0.core.listing(&self.0.view, &scope);
        self.0.listing.store(listing.clone());
        listing
    }

    fn list_changes(&self) -> ListChanges {
        let rules = self.0.core.dispatcher.policy().changes();
        let tools = self.0.core.tools.changes();
        ListChanges { loaded: self.0.loaded.clone(), rules, tools }
    }

    /// Tells a client with a handshake when its list changes, as long as its handler lives.
    pub(super) fn tell_lists(&self, peer: &Peer<RoleServer>) {
        let mut changes = self.list_changes();
        self.0.telling.get_or_init(|| {
            let (peer, end) = (peer.clone(), CancellationToken::new());
            let ended = end.clone();
            tokio::spawn(async move {
                loop {
                    let changed = tokio::select! {
                        () = ended.cancelled() => return,
                        changed = changes.next() => changed,
                    };
                    if changed.is_err() || peer.notify_tool_list_changed().await.is_err() {
                        return;
                    }
                }
            });
            end.drop_guard()
        });
    }

    /// Tells a client of 2026-07-28 when its list changes, until it does not listen any more.
    pub(super) async fn listen_to_lists(&self, context: &SubscriptionContext) {
        let wanted = context.accepted().tools_list_changed == Some(true);
        if !wanted {
            return;
        }
        let mut changes = self.list_changes();
        loop {
            let changed = tokio::select! {
                () = context.cancelled() => return,
                changed = changes.next() => changed,
            };
            if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hivekeep_registry::ToolView;

    use hivekeep_door_server::listing::ListingScope;

    use super::*;

    /// About 6,000 tokens.
    const MOST_BYTES: usize = 24 * 1024;

    #[test]
    fn a_days_tools_are_there_and_cost_little() {
        let catalogue = hivekeep_config::families::catalogue();
        let (toolsets, listing) = small_listing(Some(vec!["Auto".to_owned()]));
        let view = ToolView { toolsets, listing, ..ToolView::default() };
        let list = ToolListing::of(&catalogue, &view, &ListingScope::default());
        let (tools, more) = list.page(None).expect("the first page");
        assert_eq!((tools.len(), more), (DAY.len(), None), "one of them is not there");
        let size = |value: &rmcp::model::Tool| serde_json::to_string(value).expect("JSON").len();
        let mut sizes: Vec<_> = tools.iter().map(|tool| (size(tool), &tool.name)).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let all: usize = sizes.iter().map(|(bytes, _)| bytes).sum();
        assert!(all <= MOST_BYTES, "{all} bytes: {sizes:?}");
    }

    #[test]
    fn auto_restricts_nothing_and_other_names_do() {
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(small_listing(None), (None, None));
        assert_eq!(small_listing(names(&["web"])), (names(&["web"]), None));
        let (toolsets, listing) = small_listing(names(&["web", "auto"]));
        assert_eq!((toolsets, listing.expect("small").toolsets), (None, vec!["web".to_owned()]));
    }
}
