//! Event-sourced logs of all workspaces, which outlive the actors that they are of.
//!
//! Work of an actor that ended may still write, and the next incarnation begins with the state that
//! this work writes to: there is one log of a workspace in a daemon's life, from its plan to its
//! removal. Nothing is decided behind a removal: a record after it would begin a stream that no
//! start of the daemon could make sense of.

use std::path::PathBuf;

use dashmap::DashMap;
use hivekeep_kernel::{Layer, ToolError, WorkspaceId};
use hivekeep_runtime::log::{self, Decision, Loaded, Log, LogError};
use hivekeep_store::{Journal, StreamId};

use crate::{
    codes,
    ledger::{Ledger, MachineFact},
    records::{Planned, Record},
};

/// The logs of a daemon's workspaces, by id.
pub(crate) struct WorkspaceLogSet {
    journal: Journal,
    /// Where this daemon's disks are.
    disks: PathBuf,
    open: DashMap<WorkspaceId, Log<Ledger>>,
}

impl WorkspaceLogSet {
    pub(crate) fn new(journal: Journal, disks: PathBuf) -> Self {
        Self { journal, disks, open: DashMap::new() }
    }

    /// Opens the log of every recorded workspace. Once in a daemon's life, before any is planned.
    ///
    /// # Errors
    /// When a stream cannot be read, or does not begin with a plan.
    pub(crate) async fn open_all(&self) -> Result<(), LogError> {
        for (stream, loaded) in sound(log::read_all(&self.journal).await?)? {
            self.insert(loaded.state.plan.id, stream, loaded);
        }
        Ok(())
    }

    fn insert(&self, id: WorkspaceId, stream: StreamId, mut loaded: Loaded<Ledger>) {
        let handle = loaded.state.handle();
        if handle.is_some_and(|handle| !handle.folders.disk_dir.starts_with(&self.disks)) {
            // A backup that was restored beside the daemon it is of, whose machine that is.
            let reason = "its machine was one of another state folder".to_owned();
            loaded.state.machine = MachineFact::Crashed { reason };
        }
        self.open.insert(id, Log::of(self.journal.clone(), stream, Some(loaded)));
    }

    /// The states of all workspaces that are recorded and not being forgotten, oldest first.
    pub(crate) fn states(&self) -> Vec<Ledger> {
        let mut states: Vec<_> = self.open.iter().filter_map(|log| log.state()).collect();
        states.sort_by_key(|ledger| ledger.plan.id);
        states
    }

    /// The durable state of a workspace; `None` of one that is not recorded, or being forgotten.
    pub(crate) fn state(&self, id: WorkspaceId) -> Option<Ledger> {
        self.open.get(&id).and_then(|log| log.state())
    }

    /// The durable state for a new incarnation of the workspace's actor. A log that has ended is
    /// opened anew.
    ///
    /// # Errors
    /// When its stream cannot be read, or the workspace has been removed.
    pub(crate) async fn begin(&self, id: WorkspaceId) -> Result<Ledger, ToolError> {
        if self.open.get(&id).ok_or_else(removed)?.ended().is_some() {
            self.reopen(id).await?;
        }
        self.state(id).ok_or_else(removed)
    }

    /// Makes a plan durable, as the first record of a workspace.
    ///
    /// # Errors
    /// When it could not be written.
    pub(crate) async fn plan(&self, plan: Planned) -> Result<(), ToolError> {
        let (id, stream) = (plan.id, log::stream::<Ledger>(plan.id).map_err(internal)?);
        let log = Log::of(self.journal.clone(), stream, None);
        let written = log.decide::<LogError>(|_| Ok(Decision::record(Record::Planned(plan))))?;
        self.open.insert(id, log);
        let written = written.await;
        if written.is_err() {
            self.open.remove(&id);
        }
        Ok(written?)
    }

    /// Decides, at once, and calls `then` when that is durable or the journal has stopped.
    ///
    /// # Errors
    /// `workspace_state` once the workspace is being forgotten; as [`Log::decide_then`].
    pub(crate) fn decide(
        &self,
        id: WorkspaceId,
        decision: Decision<Record>,
        then: impl FnOnce(Result<(), LogError>) + Send + 'static,
    ) -> Result<(), ToolError> {
        // Held until it is decided, so that no removal comes in between.
        let log = self.open.get(&id).ok_or_else(removed)?;
        log.decide_then(|_| Ok(decision), then)
    }

    /// Removes all records of a workspace; nothing can be decided about it from now on.
    ///
    /// # Errors
    /// When they could not be removed; then they can be added to.
    pub(crate) async fn forget(&self, id: WorkspaceId) -> Result<(), ToolError> {
        let (_, log) = self.open.remove(&id).ok_or_else(removed)?;
        let Err(error) = log.forget().await else { return Ok(()) };
        // Until it is opened anew it says what is wrong.
        self.open.insert(id, log);
        match self.reopen(id).await {
            // Whatever was said, they are gone.
            Ok(()) if !self.open.contains_key(&id) => Ok(()),
            _ => Err(error.into()),
        }
    }

    async fn reopen(&self, id: WorkspaceId) -> Result<(), ToolError> {
        let stream = log::stream::<Ledger>(id).map_err(internal)?;
        match log::read(&self.journal, &stream).await? {
            Some(loaded) => self.insert(id, stream, loaded),
            None => drop(self.open.remove(&id)),
        }
        Ok(())
    }
}

/// The workspaces of a journal that nobody writes. Blocks.
///
/// # Errors
/// As [`WorkspaceLogSet::open_all`].
pub(crate) fn ledgers(journal: &Journal) -> Result<Vec<Ledger>, LogError> {
    let loaded = sound(log::load_all(journal)?)?;
    Ok(loaded.into_iter().map(|(_, loaded)| loaded.state).collect())
}

type Streams = Vec<(StreamId, Loaded<Ledger>)>;

/// Nothing is written before a plan, so a stream without one is damaged.
fn sound(streams: log::Streams<Ledger>) -> Result<Streams, LogError> {
    let what = || "the first record is not a plan".to_owned();
    let stray = streams.stray.into_iter().next();
    stray.map_or(Ok(streams.loaded), |stream| Err(LogError::Unreadable { stream, what: what() }))
}

fn removed() -> ToolError {
    ToolError::new(Layer::Actor, codes::WORKSPACE_STATE, "the workspace has been removed")
}

fn internal(error: hivekeep_store::Error) -> ToolError {
    ToolError::internal(error.to_string())
}

#[cfg(test)]
mod tests;
