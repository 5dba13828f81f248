//! The tool `rag_share`.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, Reply, ToolError, WorkspaceId, codes as common, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::collections::{Collections, Msg, Sharing};

const PATIENCE: Duration = Duration::from_secs(10);

/// Give one of your collections to workspaces to read, as those of a team's members, or take it back. Sessions
/// that own such a workspace find it in rag_collections and ask it with rag_query; they change nothing in it.
/// Your own sessions read all your collections without this.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RagShare {
    /// Collection.
    #[schemars(length(min = 1, max = 64))]
    pub collection: String,
    /// Workspaces by id or name; to take it back from one that is gone, by id.
    #[schemars(length(min = 1, max = 64))]
    pub workspaces: Vec<String>,
    /// True to take it back.
    #[serde(default)]
    pub take_back: bool,
}

/// Who was given what.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CollectionShared {
    /// Collection.
    pub collection: String,
    /// Ids of the workspaces.
    pub workspaces: Vec<WorkspaceId>,
    /// True if it was taken back.
    pub taken_back: bool,
}

tools! {
    pub FAMILY: "rag" for Collections, singleton collections;
    rag_share: RagShare => CollectionShared = Collections::on_share {
        title: "Share a collection", effect: Write, risk: Risk::Medium,
    };
}

impl Collections {
    pub(super) fn on_share(
        &mut self,
        cx: &CallCx,
        input: RagShare,
    ) -> Result<Reply<CollectionShared>, ToolError> {
        let user = self.shared.user(cx.session)?;
        let RagShare { collection, workspaces, take_back } = input;
        let ids = workspaces.iter().map(|name| {
            let found = self.shared.workspaces.as_ref().and_then(|files| files.find(name));
            let gone = || name.parse().ok().filter(|_| take_back);
            found.map(|found| found.id).or_else(gone).ok_or_else(|| {
                let code = common::WORKSPACE_NOT_FOUND;
                ToolError::not_found(Layer::Resolve, code, "workspace", name)
                    .next("workspace_list shows yours")
            })
        });
        let workspaces = ids.collect::<Result<Vec<_>, _>>()?;
        let sharing = match take_back {
            true => Sharing::TakenBack(workspaces.clone()),
            false => Sharing::With(workspaces.clone()),
        };
        let (manager, cx) = (self.me.address.clone(), cx.clone());
        Ok(Reply::later(async move {
            let name = collection.clone();
            let done = manager.ask(PATIENCE, |reply| Msg::share(user, name, sharing, reply));
            cx.guard(async { done.await? }).await?;
            Ok(CollectionShared { collection, workspaces, taken_back: take_back })
        }))
    }
}
