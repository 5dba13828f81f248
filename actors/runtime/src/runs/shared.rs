//! State that all handles of the runs and each incarnation of their manager share, and the changes that are done to
//! their end, whether or not anybody waits.

use std::{future::Future, time::Duration};

use futures::FutureExt;
use hivekeep_kernel::{Address, Layer, ToolError, User, codes};
use hivekeep_store::StreamId;

use super::{
    IdOf, RecordOf, RunOptions, RunState,
    manager::Msg,
    table::{KeptRun, Table},
};
use crate::{
    Daemon, Waiters,
    log::{self, Decision, Log, LogError},
    saga::{Saga, SagaHandle},
};

/// Time limit of a removal, which waits for the last steps of a run that is over.
const PATIENCE: Duration = Duration::from_secs(10);

/// State that outlives the manager's incarnations.
pub(super) struct Shared<G: Saga<State: RunState>> {
    pub(super) daemon: Daemon,
    pub(super) options: RunOptions,
    pub(super) args: G::Args,
    pub(super) waiters: Waiters,
    pub(super) manager: Address<Msg<IdOf<G>>>,
    pub(super) table: Table<G>,
}

impl<G: Saga<State: RunState>> Shared<G> {
    /// Has the manager look whether something is due. One that is being restarted looks at all.
    pub(super) fn look(&self, id: IdOf<G>) {
        let _all_are_looked_at = self.manager.send(Msg::Look(id));
    }

    /// Number of a user's runs at a time, as its tier bounds it.
    pub(super) fn allowance(&self, user: User) -> usize {
        let most = G::State::ALLOWANCE.and_then(|kind| self.daemon.sessions.allowance(user, kind));
        most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Writes the first records of a run that was admitted.
    pub(super) async fn write(
        &self,
        id: IdOf<G>,
        stream: StreamId,
        first: RecordOf<G>,
        more: Vec<RecordOf<G>>,
    ) -> Result<(), ToolError> {
        let log = Log::<G::State>::of(self.daemon.journal.clone(), stream.clone(), None);
        let all = more.into_iter().fold(Decision::record(first), Decision::and);
        let written = match log.decide(|_| Ok::<_, LogError>(all)) {
            Ok(written) => written.await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            self.table.take(id);
            // The record may be durable all the same, or become so: its removal is written behind it.
            let undone = self.daemon.journal.forget(&stream).await.is_ok();
            return Err(unwritten::<G>(error, undone));
        }
        let handle =
            SagaHandle::new(log).ok_or_else(|| ToolError::internal("it was just begun"))?;
        self.table.put(id, KeptRun::Open(handle));
        self.look(id);
        Ok(())
    }

    /// Waits until a run that is over has taken its last steps.
    async fn rested(&self, id: IdOf<G>) -> Result<(), ToolError> {
        let rested = tokio::time::timeout(PATIENCE, self.table.rested(id)).await;
        rested.map_err(|_| {
            let message = format!("the {} {id} takes its last steps", G::State::LABEL);
            ToolError::new(Layer::Actor, codes::BUSY, message)
                .next("repeat the call soon; nothing was changed")
                .retry_after(Duration::from_secs(1))
        })
    }

    /// Has a run that is over go on as `decide` says.
    pub(super) async fn reopen(
        &self,
        id: IdOf<G>,
        user: User,
        decide: impl FnOnce(&G::State) -> Result<Decision<RecordOf<G>>, ToolError> + Send,
    ) -> Result<(), ToolError> {
        self.rested(id).await?;
        let label = G::State::LABEL;
        if !self.table.readmit(id, self.options.max_running, self.allowance(user))? {
            let message = format!("the {label} {id} is not over");
            return Err(ToolError::new(Layer::Actor, codes::BUSY, message).next(format!(
                "wait for its end, or cancel it; {} shows it",
                G::State::LISTED_BY
            )));
        }
        let reopened = async {
            let stream = stream::<G>(id)?;
            let loaded = log::read_one::<G::State>(&self.daemon.journal, &stream).await?;
            let log = Log::<G::State>::of(self.daemon.journal.clone(), stream, loaded);
            log.decide(|state| match state {
                Some(state) => decide(state),
                None => Err(ToolError::internal("its records are gone")),
            })?
            .await?;
            SagaHandle::new(log).ok_or_else(|| ToolError::internal("it was just read"))
        };
        match reopened.await {
            Ok(handle) => {
                self.table.put(id, KeptRun::Open(handle));
                self.look(id);
                Ok(())
            }
            Err(error) => {
                self.table.stays_over(id);
                Err(error)
            }
        }
    }

    pub(super) async fn remove(&self, id: IdOf<G>) -> Result<bool, ToolError> {
        self.rested(id).await?;
        match self.table.take(id) {
            Some(KeptRun::Open(handle)) => {
                let _gone_with_its_manager = self.manager.send(Msg::Removed(id));
                handle.forget().await?;
            }
            Some(KeptRun::Over(state)) => {
                let stream = stream::<G>(id)?;
                if let Err(source) = self.daemon.journal.forget(&stream).await {
                    self.table.put(id, KeptRun::Over(state));
                    return Err(LogError::Journal { stream, source }.into());
                }
            }
            Some(kept @ (KeptRun::Begins(_) | KeptRun::Reopens(_))) => {
                self.table.put(id, kept);
                return Ok(false);
            }
            None => return Ok(false),
        }
        Ok(true)
    }
}

/// Does the work to its end, whether or not anybody waits for it.
///
/// # Errors
/// Those of the work; `internal` for a panic.
pub async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ToolError>> + Send + 'static,
) -> Result<T, ToolError> {
    let done = tokio::spawn(work.boxed()).await;
    done.unwrap_or_else(|panic| Err(ToolError::internal(panic.to_string())))
}

pub(super) fn stream<G: Saga<State: RunState>>(id: IdOf<G>) -> Result<StreamId, ToolError> {
    log::stream::<G::State>(id).map_err(|error| ToolError::internal(error.to_string()))
}

fn unwritten<G: Saga<State: RunState>>(error: LogError, undone: bool) -> ToolError {
    let told = ToolError::from(error);
    if undone {
        return told.next("`hivekeep logs` says more; nothing was begun");
    }
    // A second call could be a second run.
    ToolError { retryable: false, ..told }.next(format!(
        "whether it was begun is not known: if so the daemon's next start goes on with it, and {} lists it",
        G::State::LISTED_BY
    ))
}

pub(super) fn is_over<G: Saga<State: RunState>>(id: IdOf<G>) -> ToolError {
    let message = format!("the {} {id} is over", G::State::LABEL);
    ToolError::new(Layer::Actor, codes::RUN_OVER, message)
        .next("begin another; nothing was written")
}
