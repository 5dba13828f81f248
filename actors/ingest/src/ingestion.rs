//! Ingestion: a durable saga that makes a collection be what its files say.
//!
//! ```text
//! files found ─▶ emptied? ─▶ what the collection has ─▶ each file: read, split ─▶ batch of what is new: embedded ─▶ written
//!                                                                                                      │
//!                                               what is of files that are gone: removed ◀──────────────┘
//! ```
//! It is a reconciliation: passages have ids by content and place, so a run compares what should be there with
//! what is, and embeds the difference alone. That is also how it goes on after a crash: what was written
//! before is found, and nothing but the batch in flight is embedded again. One that watches begins again from
//! the files whenever they change, until it is cancelled.

mod batch;
mod known;
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
use batch::Batch;
use known::Known;
use passages::{FilePassages, PassagesWanted, SeenPdfs, Wanted};
use watch::{is_news, is_over};

/// Files that failed, or are left out, and are named.
const MOST_NAMED: usize = 20;
/// Time for workspaces to be taken up, and between two looks.
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

/// One incarnation of an ingestion.
pub(crate) struct Ingestion {
    shared: Arc<IngestShared>,
    handle: SagaHandle<Self>,
    /// The place was there, so it is not waited for any more.
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
            // It sees what changes while the round runs.
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
            // A user who is gone has nothing to follow; the last call that could end it was theirs.
            if !self.changed(watcher).await || !self.shared.knows(state.made.owner) {
                let last = self.handle.state().last.unwrap_or_default();
                return self.handle.record(Record::Ended(last)).await;
            }
        }
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

impl Ingestion {
    fn name(&self) -> String {
        self.handle.view(|view| view.state.made.id.to_string())
    }

    /// Makes the collection be what the files say now. Cancellation ends it.
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
        // A path or a model that is not there empties nothing.
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

    /// The place, without a look at it.
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
                    // What is watched may lose its last file.
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

/// Between two attempts, at first.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(200);
