//! Vector store as an interface: an index in files of the daemon, or a Qdrant server.
//!
//! Both have the same collections: a dense vector compared by cosine, a sparse one of BM25 weights that the
//! store multiplies by the rarity of each term, and the same filters. A change is durable when it is
//! answered, and may be made again.

pub(crate) mod embedded;
pub(crate) mod qdrant;

use async_trait::async_trait;
use hivekeep_kernel::{Layer, ToolError};

use crate::{
    codes,
    point::{PassagePayload, Point, PointId, SparseVector, Whereabouts},
};

/// Failure of a store.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(crate) struct StoreFailure {
    pub(crate) message: String,
    /// True if the same request may succeed later.
    pub(crate) passing: bool,
}

impl StoreFailure {
    /// A failure that stays.
    pub(crate) fn lasting(message: impl Into<String>) -> Self {
        Self { message: message.into(), passing: false }
    }

    /// A failure that may pass.
    pub(crate) fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), passing: true }
    }
}

impl From<StoreFailure> for ToolError {
    fn from(failure: StoreFailure) -> Self {
        let error = Self::new(Layer::Store, codes::VECTOR_STORE_FAILED, failure.message)
            .next("check `ingest.qdrant` and the server, or the disk of the daemon");
        if failure.passing { error.retryable() } else { error }
    }
}

/// Change of a collection, made in this order.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct PointChange {
    /// Points to insert, in place of those of their ids.
    pub(crate) upserted: Vec<Point>,
    /// Payloads to exchange; the vectors stay.
    pub(crate) moved: Vec<(PointId, PassagePayload)>,
    /// Points to remove; missing ones are ignored.
    pub(crate) removed: Vec<PointId>,
}

impl PointChange {
    pub(crate) fn is_empty(&self) -> bool {
        self.upserted.is_empty() && self.moved.is_empty() && self.removed.is_empty()
    }
}

/// Points that a search looks at: all conditions hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PointFilter {
    pub(crate) source: Option<String>,
    pub(crate) category: Option<String>,
    pub(crate) among: Option<Vec<PointId>>,
}

/// Vector that points are compared with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SearchVector {
    /// Cosine similarity.
    Dense(Vec<f32>),
    /// BM25; points without any of the terms are not found.
    Sparse(SparseVector),
}

/// Point that a search found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundPoint {
    pub(crate) id: PointId,
    pub(crate) score: f32,
    pub(crate) payload: PassagePayload,
}

/// Page of the points of a collection.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PointPage {
    pub(crate) rows: Vec<(PointId, Whereabouts)>,
    /// First point of the next page.
    pub(crate) next: Option<PointId>,
}

/// State of a collection in its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredState {
    pub(crate) points: u64,
    /// `green`, `yellow`, `grey` or `red`, as Qdrant has it.
    pub(crate) status: String,
}

/// Collections of points by name: letters, digits and `_`.
#[async_trait]
pub(crate) trait PointStore: Send + Sync {
    /// Creates a collection for vectors of a length. An existing one is left as it is.
    async fn create(&self, collection: &str, dimension: usize) -> Result<(), StoreFailure>;

    /// Removes a collection, if there is one.
    async fn discard(&self, collection: &str) -> Result<(), StoreFailure>;

    /// State of a collection; `None` if it is not there.
    async fn state(&self, collection: &str) -> Result<Option<StoredState>, StoreFailure>;

    /// Makes a change, durable when it is answered.
    async fn change(&self, collection: &str, change: PointChange) -> Result<(), StoreFailure>;

    /// Points in order of their ids, from `from` on, at most `limit`.
    async fn page(
        &self,
        collection: &str,
        from: Option<PointId>,
        limit: usize,
    ) -> Result<PointPage, StoreFailure>;

    /// The best points, best first.
    async fn search(
        &self,
        collection: &str,
        vector: SearchVector,
        filter: PointFilter,
        limit: usize,
    ) -> Result<Vec<FoundPoint>, StoreFailure>;
}
