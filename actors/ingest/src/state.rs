//! Event-sourced state of a collection: whose it is, which model made its vectors, and the ingestion that runs.
//!
//! ```text
//! made ─▶ idle ─▶ begun ─▶ (cleared) ─▶ (model) ─▶ ended ─▶ idle ─▶ deleted ─▶ no stream
//!                   ├─▶ (round)*, while it watches ─▶ ended
//!                   └─▶ cancelled ────────────────▶ ended
//! ```

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{SessionId, ToolError, User, WorkspaceId};
use hivekeep_runtime::{log::Sourced, saga::SagaState};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};

use crate::point::CollectionId;

/// Records after which a stream is folded.
const FOLD_EVERY: usize = 32;

/// Creation of a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) id: CollectionId,
    pub(crate) owner: User,
    pub(crate) name: String,
    pub(crate) at: DateTime<Utc>,
}

/// Parameters of an ingestion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IngestionPlan {
    pub(crate) session: SessionId,
    /// Lasting name of the place.
    pub(crate) place: String,
    /// Path in the place.
    pub(crate) path: String,
    pub(crate) recreate: bool,
    /// Whether the ingestion stays, and ingests changes.
    #[serde(default)]
    pub(crate) watch: bool,
    pub(crate) at: DateTime<Utc>,
}

/// File that was not ingested, or only in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FailedFile {
    pub(crate) path: String,
    pub(crate) why: String,
}

/// Outcome of an ingestion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct IngestionReport {
    /// Files that are in the collection.
    pub(crate) files: u64,
    /// Passages of those files.
    pub(crate) chunks: u64,
    /// Passages whose vectors were made now.
    pub(crate) embedded: u64,
    /// Passages that were removed.
    pub(crate) removed: u64,
    /// Files without text.
    pub(crate) skipped: u64,
    /// First files that were skipped or read in part.
    #[serde(default)]
    pub(crate) left_out: Vec<FailedFile>,
    /// First files that failed.
    pub(crate) failed: Vec<FailedFile>,
    pub(crate) failed_total: u64,
    /// Why the ingestion stopped early; `None` if it came to its end.
    pub(crate) error: Option<ToolError>,
}

/// Ingestion that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IngestionRun {
    pub(crate) plan: IngestionPlan,
    /// Whether the collection was emptied, where that was asked for.
    pub(crate) cleared: bool,
    pub(crate) cancelled: bool,
    /// Whether the first round of a watching ingestion has ended.
    #[serde(default)]
    pub(crate) watching: bool,
}

/// Model of a collection's vectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VectorModel {
    pub(crate) model: String,
    pub(crate) dimension: usize,
}

/// Record of a collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Record {
    /// There is a collection.
    Made(Made),
    /// An ingestion begins.
    Begun(IngestionPlan),
    /// The collection is empty now.
    Cleared,
    /// Vectors of this model are about to be written.
    Model(VectorModel),
    /// The ingestion is to stop.
    Cancelled,
    /// The ingestion has ended.
    Ended(IngestionReport),
    /// A round has ended, and the ingestion watches on.
    Round(IngestionReport),
    /// Sessions that own these workspaces may read the collection.
    Shared(Vec<WorkspaceId>),
    /// Sessions that own these workspaces may not read the collection any more.
    TakenBack(Vec<WorkspaceId>),
    /// The collection is to be removed with everything in it.
    Deleted,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CollectionState {
    pub(crate) made: Made,
    pub(crate) model: Option<VectorModel>,
    pub(crate) run: Option<IngestionRun>,
    /// The last ingestion that ended.
    pub(crate) last: Option<IngestionReport>,
    /// Whether the collection is being removed.
    #[serde(default)]
    pub(crate) deleted: bool,
    /// Workspaces whose owners may read the collection.
    #[serde(default)]
    pub(crate) readers: BTreeSet<WorkspaceId>,
}

impl Sourced for CollectionState {
    const KIND: &'static str = "knowledge";
    const FOLD_EVERY: usize = FOLD_EVERY;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Made(made) => {
                let (deleted, readers) = (false, BTreeSet::new());
                Ok(Self { made, model: None, run: None, last: None, deleted, readers })
            }
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match (record, &mut self.run) {
            (Record::Begun(plan), run @ None) if !self.deleted => {
                let (cleared, cancelled, watching) = (false, false, false);
                *run = Some(IngestionRun { plan, cleared, cancelled, watching });
            }
            (Record::Cleared, Some(run)) => {
                run.cleared = true;
                self.model = None;
            }
            (Record::Model(model), Some(_)) if self.model.is_none() => self.model = Some(model),
            (Record::Cancelled, Some(run)) if !run.cancelled => run.cancelled = true,
            (Record::Ended(report), run @ Some(_)) => {
                *run = None;
                self.last = Some(report);
            }
            (Record::Round(report), Some(run)) if run.plan.watch => {
                run.watching = true;
                self.last = Some(report);
            }
            (Record::Shared(readers), _) => self.readers.extend(readers),
            (Record::TakenBack(readers), _) => {
                self.readers.retain(|reader| !readers.contains(reader));
            }
            (Record::Deleted, _) if !self.deleted => self.deleted = true,
            (other, _) => return Err(other),
        }
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}

impl SagaState for CollectionState {
    fn holds(&self) -> Option<SessionId> {
        self.run.as_ref().map(|run| run.plan.session)
    }

    fn is_cancelled(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.cancelled)
    }

    fn cancellation(&self) -> Option<Record> {
        self.run.as_ref().filter(|run| !run.cancelled).map(|_| Record::Cancelled)
    }
}

/// The stream of a collection.
pub(crate) fn stream(id: CollectionId) -> StreamId {
    hivekeep_runtime::log::stream::<CollectionState>(id)
        .expect("an id has only letters, digits and `_`")
}
