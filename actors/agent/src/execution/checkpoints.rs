//! Checkpoints: snapshots of an execution's machine behind its turns, for forks and rewinds to go on from. That of a
//! program is made while one of its requests is held, so that it waits for the answer in the snapshot.
//!
//! A snapshot is known by its name, which its turn has alone. So no intent is recorded: one that was made by a daemon
//! that died is found by the next.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, ExecutionId, Layer, ToolError, codes};
use hivekeep_manifest::agent::CheckpointMode;
use hivekeep_ports::{
    FoundWorkspace, OwnedSnapshot, WorkspaceForks, WorkspaceReadiness, own_workspace_name,
};
use hivekeep_runtime::{
    OnBehalfOf,
    log::{Decision, LogError},
};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    ExecutionSaga,
    forks::{ForkRecord, RewoundMachine, TurnPlace},
    place::{ExecutionMachines, MAKING},
    state::{ExecutionState, KeptCheckpoint, Record},
};
use crate::gateway::ConversationPlace;

/// Most snapshots that are kept of a machine.
const MOST: usize = 32;
/// Time limit of a call of `snapshot`.
const SAVING: Duration = Duration::from_secs(300);

impl ExecutionState {
    /// Place of the checkpoint that is due: before the last turn as long as none of its calls has ended, which wait for
    /// that, else behind it.
    pub(super) fn checkpoint_due(&self) -> Option<TurnPlace> {
        if self.begun.plan.program.is_some() {
            return None;
        }
        let (mut place, mut turns) = (self.place(), &*self.iteration()?.turns);
        if let [before @ .., last] = turns
            && last.results.iter().all(Option::is_none)
        {
            (place.turns, turns) = (place.turns - 1, before);
        }
        let last = turns.last();
        // A turn without calls changed nothing.
        let wanted = match self.begun.plan.checkpoint {
            CheckpointMode::Turn => last.is_none_or(|turn| !turn.results.is_empty()),
            CheckpointMode::Iteration => last.is_none(),
            CheckpointMode::None => false,
        };
        (wanted && self.forks.checkpoint(place).is_none()).then_some(place)
    }

    /// True if the calls of the last turn wait for a checkpoint.
    pub(super) fn calls_wait(&self) -> bool {
        self.checkpoint_due().is_some_and(|place| place != self.place())
    }

    /// Place of the checkpoint that is due before a request of the program is passed on.
    pub(crate) fn program_checkpoint_due(&self, request: &str) -> Option<TurnPlace> {
        let (iteration, turns) = (self.next_turn().0, self.relayed.turns_before(request)?);
        let place = TurnPlace { iteration, turns };
        let wanted = match self.begun.plan.checkpoint {
            CheckpointMode::Turn => true,
            CheckpointMode::Iteration => turns == 0,
            CheckpointMode::None => false,
        };
        (wanted && !self.asks_no_more() && self.forks.checkpoint(place).is_none()).then_some(place)
    }

    /// Name of a snapshot, which no other turn has, nor this one before a rewind. That of a program has the number of
    /// its calls, too: one that a daemon made which died before its record may be older than a later call.
    pub(crate) fn snapshot_name(&self, TurnPlace { iteration, turns }: TurnPlace) -> String {
        let name = format!("turn-{}-{}-{turns}", self.forks.rewinds, iteration + 1);
        match self.begun.plan.program {
            Some(_) => format!("{name}-{}", self.next_turn().1),
            None => name,
        }
    }
}

impl ExecutionMachines {
    /// Own machine of an execution, if it has one.
    pub(crate) fn own(&self, state: &ExecutionState) -> Option<FoundWorkspace> {
        let session = state.child?;
        let found = self.files.find(&own_workspace_name(session));
        found.filter(|found| found.owner == Some(session))
    }

    async fn snapshot(
        &self,
        id: ExecutionId,
        of: &OwnedSnapshot,
        action: &str,
        more: Value,
    ) -> Result<(), ToolError> {
        let mut args =
            json!({ "workspace_id": of.workspace, "action": action, "name": of.snapshot });
        for (key, value) in more.as_object().into_iter().flatten() {
            args[key] = value.clone();
        }
        let caller = OnBehalfOf::own(of.owner, SAVING);
        let done: Result<IgnoredAny, _> = self.tools.call(id, &caller, "snapshot", args).await;
        done.map(drop)
    }

    /// Makes a snapshot of an execution's machine as it is now, with its memory if it runs, and of a program's with that
    /// alone; one that is there was made before.
    ///
    /// # Errors
    /// Those of `snapshot`.
    pub(crate) async fn save(
        &self,
        state: &ExecutionState,
        machine: &FoundWorkspace,
        name: String,
    ) -> Result<OwnedSnapshot, ToolError> {
        let gone = || ToolError::not_found(Layer::Actor, codes::WORKSPACE_NOT_FOUND, "machine", "");
        let owner = state.child.ok_or_else(gone)?;
        let of = OwnedSnapshot { workspace: machine.id, owner, snapshot: name };
        // A program is nowhere else.
        let runs =
            state.begun.plan.program.is_some() || machine.readiness == WorkspaceReadiness::Ready;
        let memory = json!({ "include_memory": runs });
        match self.snapshot(state.begun.id, &of, "create", memory).await {
            Err(error) if !error.is(codes::SNAPSHOT_EXISTS) => Err(error),
            _ => Ok(of),
        }
    }

    /// The same, in place of the snapshots that are missed least; gives the names of those.
    async fn checkpoint(
        &self,
        state: &ExecutionState,
        machine: &FoundWorkspace,
        name: String,
    ) -> Result<(OwnedSnapshot, Vec<String>), (ToolError, Vec<String>)> {
        let (mut removed, mut rest) = (Vec::new(), state.forks.kept().peekable());
        let mut left = state.forks.kept().count();
        loop {
            if left < MOST || rest.peek().is_none() {
                match self.save(state, machine, name.clone()).await {
                    Err(error) if error.is(codes::TOO_MANY_SNAPSHOTS) && rest.peek().is_some() => {}
                    Err(error) => return Err((error, removed)),
                    Ok(made) => return Ok((made, removed)),
                }
            }
            let Some(old) = rest.next() else { continue };
            let newer = json!({ "keep_newer": true });
            match self.snapshot(state.begun.id, old, "delete", newer).await {
                Err(error) if !error.is(codes::SNAPSHOT_NOT_FOUND) => {
                    // A fork rests on it.
                    tracing::debug!(snapshot = old.snapshot, %error, "a checkpoint is kept");
                }
                _ => {
                    removed.push(old.snapshot.clone());
                    left -= 1;
                }
            }
        }
    }

    /// Keeps the machine as it is now, at a place; gives the record of that, which tells of a failure.
    pub(crate) async fn keep(
        &self,
        state: &ExecutionState,
        place: TurnPlace,
        conversation: Option<ConversationPlace>,
    ) -> ForkRecord {
        let made = match self.own(state) {
            Some(machine) => {
                let name = state.snapshot_name(place);
                self.checkpoint(state, &machine, name).await.map(|(kept, it)| (Some(kept), it))
            }
            None => Ok((None, Vec::new())),
        };
        let (kept, removed, error) = match made {
            Ok((kept, removed)) => (kept, removed, None),
            Err((error, removed)) => (None, removed, Some(Box::new(error))),
        };
        ForkRecord::Checkpointed { place, kept, removed, error, conversation }
    }

    /// Makes the machine of a fork, unless it is there.
    pub(super) async fn fork(
        &self,
        forks: &Arc<dyn WorkspaceForks>,
        state: &ExecutionState,
        source: &OwnedSnapshot,
    ) -> Result<(), ToolError> {
        let session = ExecutionSaga::child(state);
        let (name, never) = (own_workspace_name(session), CancellationToken::new());
        if self.files.find(&name).is_some() {
            return Ok(());
        }
        let span = tracing::info_span!("fork", execution = %state.begun.id);
        let cx = CallCx::internal(session, MAKING, never, span);
        let runs = state.forks.origin.as_ref().is_some_and(|origin| origin.program.is_some());
        match forks.fork(&cx, source, &name, runs, None).await {
            // The daemon before this one made it.
            Err(error) if error.is(codes::NAME_TAKEN) => Ok(()),
            forked => forked.map(drop),
        }
    }
}

impl ExecutionSaga {
    /// Keeps the machine as it is behind the last turn.
    pub(super) async fn checkpoint(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some(place) = state.checkpoint_due() else { return Ok(()) };
        let made = self.shared.machines.keep(&state, place, None).await;
        if matches!(made, ForkRecord::Checkpointed { error: Some(_), .. }) {
            self.unless_closing().await;
        }
        self.handle.record(Record::fork(made)).await
    }

    /// Goes back to an earlier turn: nothing runs any more.
    pub(super) async fn rewind(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some(to) = state.forks.rewinding() else { return Ok(()) };
        let machines = &self.shared.machines;
        let restored = match (state.forks.checkpoint(to), machines.own(&state)) {
            (Some(KeptCheckpoint::Kept(kept)), Some(_)) => {
                let restored = machines.snapshot(state.begun.id, kept, "restore", Value::Null);
                restored.await.map(|()| RewoundMachine::Restored)
            }
            (_, Some(_)) => Ok(RewoundMachine::Unchanged),
            (_, None) => Ok(RewoundMachine::None),
        };
        let record = match restored {
            Ok(machine) => ForkRecord::Rewound { machine },
            Err(error) => {
                self.unless_closing().await;
                ForkRecord::RewindFailed { error: Box::new(error) }
            }
        };
        let decide = |state: &ExecutionState| {
            Ok(match state.forks.rewinding().is_some() && state.end.is_none() {
                true => Decision::record(Record::fork(record)),
                false => Decision::nothing(),
            })
        };
        self.handle.decide::<LogError>(decide).await?;
        self.settle();
        Ok(())
    }

    /// Waits until somebody wants the execution to go on from an earlier turn.
    pub(super) async fn rewind_asked(&self) {
        let mut news = self.handle.watch();
        // The handle keeps it open.
        let _asked = news.wait_for(|view| view.state.forks.rewinding().is_some()).await.map(drop);
    }

    /// Takes a step that a rewind drops where it stands.
    pub(super) async fn unless_rewound(
        &self,
        step: impl Future<Output = Result<(), LogError>>,
    ) -> Result<(), LogError> {
        tokio::select! {
            biased;
            () = self.rewind_asked() => Ok(()),
            taken = step => taken,
        }
    }
}
