//! Batch of passages that are embedded together, and of what else is changed with them, by what of each file the
//! collection had before.

use std::collections::BTreeMap;

use hivekeep_kernel::{SessionId, fault_point};
use tokio::time::Instant;

use super::{Ingestion, PassagesWanted, Stopped, Wanted, too_many};
use crate::{
    embed::{self, Embedded},
    ingestion::IngestionReport,
    point::{Point, PointId, Whereabouts},
    shared::{EMBED_LIMIT, IngestShared},
    state::{Record, VectorModel},
    store::{PointChange, StoreFailure},
    terms,
};

/// Passages that are embedded at a time.
pub(crate) const BATCH: usize = 64;
/// Points that are removed at a time.
const REMOVED_AT_A_TIME: usize = 1_000;
/// Points of a page.
const PAGE: usize = 1_000;

/// Passages of a file: ids and whereabouts.
type KnownFile = BTreeMap<PointId, Whereabouts>;

/// Passages of a collection before an ingestion by file, less those that were taken.
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
    fn take(&mut self, file: &str) -> KnownFile {
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

pub(super) struct Batch<'i> {
    ingestion: &'i Ingestion,
    session: SessionId,
    /// Passages to embed.
    new: Vec<Wanted>,
    /// Other changes, in one with the next batch that is written.
    change: PointChange,
    /// Points of the collection when all of it is written.
    points: usize,
}

impl<'i> Batch<'i> {
    pub(super) fn new(ingestion: &'i Ingestion, session: SessionId, points: usize) -> Self {
        Self { ingestion, session, new: Vec::new(), change: PointChange::default(), points }
    }

    /// Brings the passages of a file up to date.
    pub(super) async fn passages(
        &mut self,
        passages: PassagesWanted,
        known: &mut Known,
        file: &str,
        report: &mut IngestionReport,
    ) -> Result<(), Stopped> {
        match passages {
            PassagesWanted::Same(passages) => {
                known.keep(file);
                report.files += u64::from(passages > 0);
                report.chunks += passages;
                Ok(())
            }
            PassagesWanted::New(wanted) => {
                report.skipped += u64::from(wanted.is_empty());
                report.files += u64::from(!wanted.is_empty());
                report.chunks += wanted.len() as u64;
                self.file(wanted, known.take(file), report).await
            }
        }
    }

    /// Adds what is different in a file: its old passages go with the last of its new ones, or after them.
    async fn file(
        &mut self,
        wanted: Vec<Wanted>,
        mut known: KnownFile,
        report: &mut IngestionReport,
    ) -> Result<(), Stopped> {
        for passage in wanted {
            match known.remove(&passage.id) {
                None => {
                    self.points += 1;
                    self.new.push(passage);
                }
                Some(before) if before != Whereabouts::from(&passage.payload) => {
                    self.change.moved.push((passage.id, passage.payload));
                }
                Some(_) => {}
            }
            if self.new.len() >= BATCH || self.change.moved.len() >= BATCH {
                self.flush(report).await?;
            }
        }
        self.points -= known.len().min(self.points);
        self.change.removed.extend(known.into_keys());
        if self.points > self.ingestion.shared.options.max_chunks {
            return Err(too_many(self.ingestion.shared.options.max_chunks).into());
        }
        Ok(())
    }

    /// Embeds and writes.
    pub(super) async fn flush(&mut self, report: &mut IngestionReport) -> Result<(), Stopped> {
        let (new, mut change) = (std::mem::take(&mut self.new), std::mem::take(&mut self.change));
        if new.is_empty() && change.is_empty() {
            return Ok(());
        }
        if !new.is_empty() {
            self.ingestion.shared.admit()?;
            change.upserted = self.embedded(new).await?;
        }
        let (embedded, removed) = (change.upserted.len() as u64, change.removed.len() as u64);
        self.write(change).await?;
        fault_point!("ingest.after_write");
        report.embedded += embedded;
        report.removed += removed;
        self.ingestion.handle.update(|live| live.embedded += embedded);
        Ok(())
    }

    /// Removes what is of files that are gone.
    pub(super) async fn gone(
        &mut self,
        points: Vec<PointId>,
        report: &mut IngestionReport,
    ) -> Result<(), Stopped> {
        for points in points.chunks(REMOVED_AT_A_TIME) {
            self.write(PointChange { removed: points.to_vec(), ..PointChange::default() }).await?;
            report.removed += points.len() as u64;
        }
        Ok(())
    }

    async fn write(&self, change: PointChange) -> Result<(), Stopped> {
        let (shared, name) = (&self.ingestion.shared, self.ingestion.name());
        shared.retried(|| shared.store.change(&name, change.clone())).await?;
        Ok(())
    }

    async fn embedded(&self, new: Vec<Wanted>) -> Result<Vec<Point>, Stopped> {
        let (shared, handle) = (&self.ingestion.shared, &self.ingestion.handle);
        let texts: Vec<_> = new.iter().map(|wanted| wanted.embedded.clone()).collect();
        let deadline = Instant::now() + EMBED_LIMIT;
        let made =
            shared.retried(|| shared.embedder.embed(self.session, texts.clone(), deadline)).await?;
        fault_point!("ingest.after_embed");
        let state = handle.state();
        match &state.model {
            Some(kept) => embed::same(&state.made.name, (&kept.model, kept.dimension), &made)?,
            None => self.begin_with(&made).await?,
        }
        let points = new.into_iter().zip(made.vectors).map(|(wanted, dense)| {
            let sparse = terms::weights(&wanted.embedded);
            Point { id: wanted.id, dense, sparse, payload: wanted.payload }
        });
        Ok(points.collect())
    }

    /// Records the model of the first vectors, and makes the collection in the store.
    async fn begin_with(&self, made: &Embedded) -> Result<(), Stopped> {
        let (shared, handle) = (&self.ingestion.shared, &self.ingestion.handle);
        let name = self.ingestion.name();
        shared.retried(|| shared.store.create(&name, made.dimension)).await?;
        let model = VectorModel { model: made.model.clone(), dimension: made.dimension };
        handle.record(Record::Model(model)).await?;
        Ok(())
    }
}
