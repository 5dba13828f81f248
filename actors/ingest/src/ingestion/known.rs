//! Passages of a collection before an ingestion: ids and whereabouts, by file.

use std::collections::BTreeMap;

use crate::{
    point::{PointId, Whereabouts},
    shared::IngestShared,
    store::StoreFailure,
};

/// Points of a page.
const PAGE: usize = 1_000;

/// Passages of a file.
pub(super) type KnownFile = BTreeMap<PointId, Whereabouts>;

/// Passages by file, less those that were taken.
#[derive(Default)]
pub(super) struct Known(BTreeMap<String, KnownFile>);

impl Known {
    /// Reads the collection page by page.
    pub(super) async fn read(
        shared: &IngestShared,
        collection: &str,
    ) -> Result<Self, StoreFailure> {
        let (mut files, mut from) = (BTreeMap::<String, KnownFile>::new(), None);
        loop {
            let page = shared.retried(|| shared.store.page(collection, from, PAGE)).await?;
            for (id, whereabouts) in page.rows {
                files.entry(whereabouts.file.clone()).or_default().insert(id, whereabouts);
            }
            match page.next {
                // Ids only grow, so the loop ends whatever a server answers.
                Some(next) if from < Some(next) => from = Some(next),
                _ => return Ok(Self(files)),
            }
        }
    }

    /// Number of passages.
    pub(super) fn points(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Number of a file's passages.
    pub(super) fn count(&self, file: &str) -> usize {
        self.0.get(file).map_or(0, BTreeMap::len)
    }

    /// Passages of a file that is ingested.
    pub(super) fn take(&mut self, file: &str) -> KnownFile {
        self.0.remove(file).unwrap_or_default()
    }

    /// Leaves the passages of a file that could not be read as they are.
    pub(super) fn keep(&mut self, file: &str) {
        self.0.remove(file);
    }

    /// Passages of the files below a folder that were neither taken nor kept.
    pub(super) fn below(self, place: &str, path: &str) -> Vec<PointId> {
        let top = match path {
            "." => format!("{place}:"),
            path => format!("{place}:{path}/"),
        };
        let gone = self.0.into_iter().filter(|(file, _)| file.starts_with(&top));
        gone.flat_map(|(_, points)| points.into_keys()).collect()
    }
}
