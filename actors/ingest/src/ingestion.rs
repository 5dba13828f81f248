//! Ingestion: a durable saga that brings a collection in line with its files.
//!
//! ```text
//! files found ─▶ emptied? ─▶ present passages ─▶ each file: read, split ─▶ new batch: embedded ─▶ written
//!                                                                                                    │
//!                                 passages of files that are gone: removed ◀─────────────────────────┘
//! ```
//! An ingestion is a reconciliation: ids of passages derive from content and place, so a run compares the
//! wanted passages with the present ones, and embeds only the difference. It resumes the same way after a
//! crash: written passages are found, and only the batch in flight is embedded again. A watching ingestion
//! begins again from the files whenever they change, until it is cancelled.

mod batch;
mod passages;
mod watch;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use hivekeep_kernel::{Layer, ToolError, fault_point};
use hivekeep_runtime::{
    log::LogError,
    saga::{Saga, SagaHandle},
};
use tokio::time::Instant;

use crate::{
    codes, embed,
    reading::{FoundFiles, ReadFailure, SourcePlace},
    shared::IngestShared,
    state::{CollectionState, FailedFile, IngestionReport, IngestionRun, Record},
};
use batch::{Batch, Known};
use passages::{FilePassages, PassagesWanted, SeenPdfs, Wanted};
use watch::{is_news, is_over};

/// Failed or left-out files that a report names.
const MOST_NAMED: usize = 20;
/// Time for workspaces to be taken up after a start of the daemon, and the pause between two looks.
const TAKE_UP_LIMIT: Duration = Duration::from_secs(60);
const TAKE_UP_PAUSE: Duration = Duration::from_millis(500);
/// Longest reason of a file.
const MAX_WHY_CHARS: usize = 300;

/// How far an ingestion is.
#[derive(Debug, Clone, Default)]
pub(crate) struct IngestionProgress {
    pub(crate) files_total: usize,
    pub(crate) files_done: usize,
    pub(crate) embedded: u64,
    /// How changes are noticed, while it waits for some.
    pub(crate) waits: Option<String>,
}

/// The one step of an ingestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reconcile;

/// Incarnation of an ingestion.
pub(crate) struct Ingestion {
    shared: Arc<IngestShared>,
    handle: SagaHandle<Self>,
    /// Whether the place was found once, so that it is not waited for any more.
    located: AtomicBool,
    /// Never locked across an await.
    seen: Mutex<SeenPdfs>,
}

impl Saga for Ingestion {
    type State = CollectionState;
    type Step = Reconcile;
    type Live = IngestionProgress;
    type Args = Arc<IngestShared>;

    fn resume(shared: Arc<IngestShared>, handle: SagaHandle<Self>) -> Self {
        Self { shared, handle, located: AtomicBool::new(false), seen: Mutex::default() }
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
        loop {
            let state = self.handle.state();
            let Some(run) = state.run.clone() else { return Ok(()) };
            // The watcher begins before the round, so that it sees changes meanwhile.
            let watcher = self.watcher(&run).await;
            let report = self.round(&run).await?;
            fault_point!("ingest.before_end");
            let stays = run.plan.watch
                && !self.handle.cancelled().is_cancelled()
                && report.error.as_ref().is_none_or(|error| run.watching && !is_over(error));
            if !stays {
                self.shared.tell(&state.made, &run.plan, &report);
                return self.handle.record(Record::Ended(report)).await;
            }
            if !run.watching || state.last.as_ref().is_none_or(|last| is_news(&report, last)) {
                self.shared.tell(&state.made, &run.plan, &report);
                self.handle.record(Record::Round(report)).await?;
            }
            fault_point!("ingest.after_round");
            // An ingestion whose owner is gone ends: nobody else could cancel it.
            if !self.changed(watcher).await || !self.shared.knows(state.made.owner) {
                let last = self.handle.state().last.unwrap_or_default();
                return self.handle.record(Record::Ended(last)).await;
            }
        }
    }
}

/// Why an ingestion stopped before its end.
enum Stopped {
    /// Error that the report records.
    Tool(ToolError),
    /// The log failed, so nothing can be recorded.
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

impl Ingestion {
    fn name(&self) -> String {
        self.handle.view(|view| view.state.made.id.to_string())
    }

    /// Brings the collection in line with the files as they are now. Cancellation ends the round.
    async fn round(&self, run: &IngestionRun) -> Result<IngestionReport, LogError> {
        let mut report = IngestionReport::default();
        let owner = self.handle.view(|view| view.state.made.owner);
        let work = async {
            let _place = self.shared.round(owner).await;
            self.reconcile(run, &mut report).await
        };
        let outcome = match self.handle.cancelled().run_until_cancelled(work).await {
            Some(outcome) => outcome,
            None => Err(Stopped::Tool(ToolError::cancelled())),
        };
        match outcome {
            Ok(()) => {}
            Err(Stopped::Tool(error)) => report.error = Some(error),
            Err(Stopped::Log(error)) => return Err(error),
        }
        Ok(report)
    }

    async fn reconcile(
        &self,
        run: &IngestionRun,
        report: &mut IngestionReport,
    ) -> Result<(), Stopped> {
        // A missing path or model is an error before the collection is emptied.
        let names = self.shared.embedder.names().await?;
        let (place, found) = self.find(run).await?;
        if run.plan.recreate && !run.cleared {
            let name = self.name();
            self.shared.retried(|| self.shared.store.discard(&name)).await?;
            self.handle.record(Record::Cleared).await?;
        }
        self.check_model(&names)?;
        self.handle.update(|live| {
            *live = IngestionProgress { files_total: found.files.len(), ..Default::default() };
        });
        for why in &found.unread {
            add_failed(report, why.clone(), "it cannot be looked at");
        }
        report.failed_total += found.unread_total.saturating_sub(found.unread.len() as u64);
        let mut known = self.known().await?;
        self.seen().begin();
        let mut batch = Batch::new(self, run.plan.session, known.points());
        for (done, file) in found.files.iter().enumerate() {
            let key = format!("{}:{}", run.plan.place, file.path());
            match self.passages(&place, file, &key, known.count(&key)).await {
                Err(ReadFailure::Place(error)) => return Err(error.into()),
                Err(ReadFailure::File(why)) => {
                    known.keep(&key);
                    add_failed(report, file.source.clone(), &why);
                }
                Ok(FilePassages { passages, left_out }) => {
                    if let Some(why) = left_out {
                        name(&mut report.left_out, file.source.clone(), &why);
                    }
                    batch.passages(passages, &mut known, &key, report).await?;
                }
            }
            self.handle.update(|live| live.files_done = done + 1);
        }
        batch.flush(report).await?;
        self.seen().end();
        if !found.single && found.unread_total == 0 {
            batch.gone(known.below(&run.plan.place, &found.top), report).await?;
        }
        Ok(())
    }

    /// Passages of the collection. A collection whose points were lost, as in a backup, is created again.
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

    /// The place, without a check that it exists.
    fn place(&self, run: &IngestionRun) -> Result<SourcePlace, ToolError> {
        Ok(SourcePlace {
            files: self.shared.places()?,
            session: run.plan.session,
            id: run.plan.place.clone(),
            stop: self.handle.cancelled().clone(),
        })
    }

    async fn find(&self, run: &IngestionRun) -> Result<(SourcePlace, FoundFiles), ToolError> {
        let place = self.place(run)?;
        let patience = Instant::now() + TAKE_UP_LIMIT;
        loop {
            match place.find(&run.plan.path, self.shared.options.max_files).await {
                // A daemon that has just begun may not have taken up its workspaces yet.
                Err(error)
                    if !self.located.load(Relaxed)
                        && place.may_come(&error)
                        && Instant::now() < patience =>
                {
                    tokio::time::sleep(TAKE_UP_PAUSE).await;
                }
                found => {
                    self.located.store(true, Relaxed);
                    let found = found?;
                    // A watched path may lose its last file.
                    let found =
                        if run.watching { found } else { found.not_none(&run.plan.path)? };
                    return Ok((place, found));
                }
            }
        }
    }
}

fn add_failed(report: &mut IngestionReport, path: String, why: &str) {
    report.failed_total += 1;
    name(&mut report.failed, path, why);
}

/// Names a file with a reason, if not too many are named.
fn name(named: &mut Vec<FailedFile>, path: String, why: &str) {
    if named.len() < MOST_NAMED {
        let why = why.chars().take(MAX_WHY_CHARS).collect();
        named.push(FailedFile { path, why });
    }
}

/// Refuses more passages than a collection may have.
fn too_many(most: usize) -> ToolError {
    let message = format!("the collection would have more than {most} passages");
    ToolError::new(Layer::Actor, codes::INGESTION_TOO_LARGE, message)
        .next("ingest a smaller folder, or ask the operator for a higher `ingest.max_chunks`")
}

/// First pause between two attempts.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(200);
