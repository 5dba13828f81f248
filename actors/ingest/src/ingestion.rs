//! Ingestion: a durable saga that makes a collection be what its files say.
//!
//! ```text
//! files found ─▶ emptied? ─▶ what the collection has ─▶ each file: read, split ─▶ batch of what is new: embedded ─▶ written
//!                                                                                                      │
//!                                               what is of files that are gone: removed ◀──────────────┘
//! ```
//! It is a reconciliation: passages have ids by content and place, so a run compares what should be there with
//! what is, and embeds the difference alone. That is also how it goes on after a crash: what was written
//! before is found, and nothing but the batch in flight is embedded again.

mod batch;
mod known;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hivekeep_kernel::{Layer, ToolError, fault_point};
use hivekeep_runtime::{
    log::LogError,
    saga::{Saga, SagaHandle},
};
use tokio::task::spawn_blocking;

use crate::{
    category::category,
    codes, embed,
    point::{PassagePayload, PointId},
    reading::{FoundFiles, SourceFile, SourcePlace, SourceText},
    shared::IngestShared,
    split::{PassageSize, split},
    state::{CollectionState, FailedFile, IngestionReport, IngestionRun, Record},
};
use batch::Batch;
use known::Known;

/// Files that failed and are named.
const MOST_NAMED: usize = 20;
/// Longest reason of a file.
const MAX_WHY_CHARS: usize = 300;

/// How far an ingestion is.
#[derive(Debug, Clone, Default)]
pub(crate) struct IngestionProgress {
    pub(crate) files_total: usize,
    pub(crate) files_done: usize,
    pub(crate) embedded: u64,
}

/// The one step of an ingestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reconcile;

/// One incarnation of an ingestion.
pub(crate) struct Ingestion {
    shared: Arc<IngestShared>,
    handle: SagaHandle<Self>,
}

impl Saga for Ingestion {
    type State = CollectionState;
    type Step = Reconcile;
    type Live = IngestionProgress;
    type Args = Arc<IngestShared>;

    fn resume(shared: Arc<IngestShared>, handle: SagaHandle<Self>) -> Self {
        Self { shared, handle }
    }

    fn due(state: &CollectionState, _: &[Reconcile]) -> Vec<Reconcile> {
        if state.run.is_some() { vec![Reconcile] } else { Vec::new() }
    }

    fn parallel(_: &CollectionState) -> usize {
        1
    }

    fn interruptible(_: Reconcile) -> bool {
        true
    }

    async fn step(&self, _: Reconcile) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some(run) = state.run.clone() else { return Ok(()) };
        let mut report = IngestionReport::default();
        let work = self.reconcile(&run, &mut report);
        let outcome = match self.handle.cancelled().run_until_cancelled(work).await {
            Some(outcome) => outcome,
            None => Err(Stopped::Tool(ToolError::cancelled())),
        };
        match outcome {
            Ok(()) => {}
            Err(Stopped::Tool(error)) => report.error = Some(error),
            Err(Stopped::Log(error)) => return Err(error),
        }
        fault_point!("ingest.before_end");
        self.shared.tell(&state.made, &run.plan, &report);
        self.handle.record(Record::Ended(report)).await
    }
}

/// Why an ingestion stopped before its end.
enum Stopped {
    /// It is recorded.
    Tool(ToolError),
    /// Nothing can be recorded.
    Log(LogError),
}

impl From<ToolError> for Stopped {
    fn from(error: ToolError) -> Self {
        Self::Tool(error)
    }
}

impl From<LogError> for Stopped {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<crate::store::StoreFailure> for Stopped {
    fn from(failure: crate::store::StoreFailure) -> Self {
        Self::Tool(failure.into())
    }
}

/// Passage as it should be in the collection.
struct Wanted {
    id: PointId,
    /// Text whose vector it has.
    embedded: String,
    payload: PassagePayload,
}

impl Ingestion {
    fn name(&self) -> String {
        self.handle.view(|view| view.state.made.id.to_string())
    }

    async fn reconcile(
        &self,
        run: &IngestionRun,
        report: &mut IngestionReport,
    ) -> Result<(), Stopped> {
        // A path or a model that is not there empties nothing.
        let names = self.shared.embedder.names().await?;
        let (place, found) = self.find(run).await?;
        if run.plan.recreate && !run.cleared {
            let name = self.name();
            self.shared.retried(|| self.shared.store.discard(&name)).await?;
            self.handle.record(Record::Cleared).await?;
        }
        self.check_model(&names)?;
        let place = Arc::new(place);
        self.handle.update(|live| live.files_total = found.files.len());
        for why in &found.unread {
            add_failed(report, why.clone(), "it cannot be looked at".to_owned());
        }
        report.failed_total += found.unread_total.saturating_sub(found.unread.len() as u64);
        let mut known = self.known().await?;
        let mut batch = Batch::new(self, run.plan.session, known.points());
        for (done, file) in found.files.iter().enumerate() {
            let key = format!("{}:{}", run.plan.place, file.path());
            match self.passages(&place, file, &key).await {
                Err(why) => {
                    known.keep(&key);
                    add_failed(report, file.source.clone(), why);
                }
                Ok(wanted) => {
                    report.skipped += u64::from(wanted.is_empty());
                    report.files += u64::from(!wanted.is_empty());
                    report.chunks += wanted.len() as u64;
                    batch.file(wanted, known.take(&key), report).await?;
                }
            }
            self.handle.update(|live| live.files_done = done + 1);
        }
        batch.flush(report).await?;
        if !found.single && found.unread_total == 0 {
            batch.gone(known.below(&run.plan.place, &found.top), report).await?;
        }
        Ok(())
    }

    /// What the collection has. One whose points were lost, as a backup leaves it, is made again.
    async fn known(&self) -> Result<Known, Stopped> {
        let Some(model) = self.handle.state().model else { return Ok(Known::default()) };
        let name = self.name();
        self.shared.retried(|| self.shared.store.create(&name, model.dimension)).await?;
        Ok(Known::read(&self.shared, &name).await?)
    }

    /// Refuses another model than the collection's before anything is embedded.
    fn check_model(&self, names: &[String]) -> Result<(), ToolError> {
        let state = self.handle.state();
        state.model.map_or(Ok(()), |kept| embed::may_be_same(&state.made.name, &kept.model, names))
    }

    async fn find(&self, run: &IngestionRun) -> Result<(SourcePlace, FoundFiles), ToolError> {
        let (_, folder) = self.shared.place(Some(&run.plan.place))?;
        let (path, most) = (run.plan.path.clone(), self.shared.options.max_files);
        let stop = self.handle.cancelled().clone();
        let found = spawn_blocking(move || {
            let place = SourcePlace::open(&folder)?;
            let found = place.find(&path, most, &|| stop.is_cancelled())?;
            Ok((place, found))
        });
        found.await.unwrap_or_else(|panic| Err(ToolError::internal(format!("a walk: {panic}"))))
    }

    /// Passages of a file. Blocking work is done beside.
    async fn passages(
        &self,
        place: &Arc<SourcePlace>,
        file: &SourceFile,
        key: &str,
    ) -> Result<Vec<Wanted>, String> {
        let (place, file, key) = (place.clone(), file.clone(), key.to_owned());
        let options = &self.shared.options;
        let size = PassageSize { bytes: options.chunk_bytes, overlap_chars: options.overlap_chars };
        let max_bytes = options.max_file_kb as u64 * 1024;
        let read = spawn_blocking(move || match place.read(&file, max_bytes)? {
            SourceText::Text(text, form) => {
                let passages = split(&text, form, size);
                Ok(passages_of(&file.source, &key, &text, passages))
            }
            SourceText::NoText(_) => Ok(Vec::new()),
        });
        read.await.unwrap_or_else(|panic| Err(format!("it cannot be split: {panic}")))
    }
}

fn passages_of(
    source: &str,
    key: &str,
    text: &str,
    passages: Vec<crate::split::Passage>,
) -> Vec<Wanted> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let category = category(source);
    let wanted = passages.into_iter().enumerate().map(|(at, passage)| {
        let text = text[passage.shown].trim();
        let embedded = match passage.section.is_empty() {
            true => format!("{source}\n{text}"),
            false => format!("{source}\n{}\n{text}", passage.section),
        };
        let nth = seen.entry(embedded.clone()).or_default();
        let id = PointId::of(key, &embedded, *nth);
        *nth += 1;
        let payload = PassagePayload {
            text: text.to_owned(),
            file: key.to_owned(),
            source: source.to_owned(),
            section: passage.section,
            category: category.to_owned(),
            chunk_index: u32::try_from(at).unwrap_or(u32::MAX),
            line: passage.line,
        };
        Wanted { id, embedded, payload }
    });
    wanted.collect()
}

fn add_failed(report: &mut IngestionReport, path: String, why: String) {
    report.failed_total += 1;
    if report.failed.len() < MOST_NAMED {
        let why = why.chars().take(MAX_WHY_CHARS).collect();
        report.failed.push(FailedFile { path, why });
    }
}

/// Refuses more passages than a collection may have.
fn too_many(most: usize) -> ToolError {
    let message = format!("the collection would have more than {most} passages");
    ToolError::new(Layer::Actor, codes::INGESTION_TOO_LARGE, message)
        .next("ingest a smaller folder, or ask the operator for a higher `ingest.max_chunks`")
}

/// Between two attempts, at first.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(200);
