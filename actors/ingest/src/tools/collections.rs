//! The tools that list, share and delete collections: `rag_collections`, `rag_share` and `rag_delete`.

use std::time::Duration;

use futures::{StreamExt, stream};
use hivekeep_kernel::{CallCx, Layer, Reply, ToolError, WorkspaceId, codes as common, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    collections::{Collections, Msg, SeenCollection, Sharing},
    shared::IngestShared,
};

const PATIENCE: Duration = Duration::from_secs(10);
/// Time for what runs in a collection to end, and for the store, when it is deleted.
const DELETION_PATIENCE: Duration = Duration::from_secs(300);
/// Collections that the store is asked for at a time.
const AT_A_TIME: usize = 8;

/// List your collections of ingested documents, and those that were given to workspaces of yours.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RagCollections {
    /// Also count their passages, and tell of ingestions.
    #[serde(default)]
    pub show_stats: bool,
}

/// Collections that can be asked.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListedCollections {
    /// Your own by name, then those of others.
    pub collections: Vec<ListedCollection>,
}

/// Collection.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListedCollection {
    /// Name.
    pub name: String,
    /// Model of its vectors; none before the first is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Length of its vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimension: Option<usize>,
    /// Passages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points_count: Option<u64>,
    /// `green` if it can be searched; `empty`; `deleting`; `unavailable` with `error`, or what the Qdrant server says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Why its store does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Ingestion that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningIngestion>,
    /// Error that stopped the last ingestion before its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ToolError>,
    /// User whose it is, of one that was given to a workspace of yours to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_by: Option<String>,
    /// Id of one that was given, in case its name is not enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Workspaces that yours is given to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_to: Vec<WorkspaceId>,
}

/// Ingestion that runs.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunningIngestion {
    /// Place and path, as `PLACE:PATH`.
    pub path: String,
    /// Files that are done.
    pub files_done: usize,
    /// All files; 0 until they are found.
    pub files_total: usize,
    /// Passages that were embedded.
    pub embedded: u64,
    /// True if it stays and ingests what changes.
    pub watching: bool,
    /// How it notices changes, while it waits for some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

/// Remove one of your collections with all its passages. An ingestion into it is stopped, and a watching one
/// ends; the files that were ingested are not touched.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RagDelete {
    /// Collection.
    #[schemars(length(min = 1, max = 64))]
    pub collection: String,
}

/// Collection that is gone.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CollectionRemoved {
    /// Collection.
    pub collection: String,
}

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

/// Workspaces that a collection was given to, or taken back from.
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
    rag_collections: RagCollections => ListedCollections = Collections::on_collections {
        title: "List collections", effect: Read,
    };
    rag_delete: RagDelete => CollectionRemoved = Collections::on_delete {
        title: "Remove a collection", effect: Destroy, risk: Risk::High,
    };
    rag_share: RagShare => CollectionShared = Collections::on_share {
        title: "Share a collection", effect: Write, risk: Risk::Medium,
    };
}

impl Collections {
    pub(super) fn on_collections(
        &mut self,
        cx: &CallCx,
        input: RagCollections,
    ) -> Result<Reply<ListedCollections>, ToolError> {
        let reader = self.shared.reader(cx.session)?;
        let (shared, manager, cx) = (self.shared.clone(), self.me.address.clone(), cx.clone());
        Ok(Reply::later(async move {
            let all = manager.ask(PATIENCE, |reply| Msg::list(reader, reply)).await?;
            let rows = stream::iter(all).map(|seen| row(&shared, seen, input.show_stats));
            let rows = async { Ok(rows.buffered(AT_A_TIME).collect::<Vec<_>>().await) };
            Ok(ListedCollections { collections: cx.guard(rows).await? })
        }))
    }

    pub(super) fn on_delete(
        &mut self,
        cx: &CallCx,
        input: RagDelete,
    ) -> Result<Reply<CollectionRemoved>, ToolError> {
        let user = self.shared.user(cx.session)?;
        let (manager, cx) = (self.me.address.clone(), cx.clone());
        Ok(Reply::later(async move {
            let name = input.collection.clone();
            let gone = manager.ask(DELETION_PATIENCE, |reply| Msg::delete(user, name, reply));
            // The deletion goes on when nobody waits for it.
            cx.guard(async { gone.await? }).await?;
            Ok(CollectionRemoved { collection: input.collection })
        }))
    }

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

async fn row(
    shared: &IngestShared,
    SeenCollection { state, live, given }: SeenCollection,
    stats: bool,
) -> ListedCollection {
    let (model, dimension) = match state.model {
        Some(made) => (Some(made.model), Some(made.dimension)),
        None => (None, None),
    };
    let mut row = ListedCollection {
        name: state.made.name.clone(),
        model,
        dimension,
        points_count: None,
        status: None,
        error: None,
        running: None,
        last_error: None,
        given_by: given.then(|| state.made.owner.to_string()),
        id: given.then(|| state.made.id.to_string()),
        given_to: match given {
            true => Vec::new(),
            false => state.readers.into_iter().collect(),
        },
    };
    if !stats {
        return row;
    }
    if state.deleted {
        row.status = Some("deleting".to_owned());
        return row;
    }
    let status = match shared.store.state(&state.made.id.to_string()).await {
        Ok(Some(stored)) => {
            row.points_count = Some(stored.points);
            stored.status
        }
        Ok(None) => {
            row.points_count = Some(0);
            "empty".to_owned()
        }
        Err(failure) => {
            row.error = Some(failure.message);
            "unavailable".to_owned()
        }
    };
    row.status = Some(status);
    row.running = state.run.filter(|_| !given).map(|run| {
        let live = live.unwrap_or_default();
        RunningIngestion {
            path: format!("{}:{}", run.plan.place, run.plan.path),
            files_done: live.files_done,
            files_total: live.files_total,
            embedded: live.embedded,
            watching: run.plan.watch,
            waits: live.waits,
        }
    });
    row.last_error = state.last.and_then(|last| last.error);
    row
}
