//! State of forks, rewinds and checkpoints.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use hivekeep_kernel::ToolError;
use hivekeep_ports::OwnedSnapshot;
use hivekeep_runtime::log::Sourced;

use super::{ExecutionState, Iteration, Record};
use crate::execution::forks::{ForkOrigin, ForkRecord, ForkedProgram, RewoundMachine, TurnPlace};

/// Checkpoint behind some turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeptCheckpoint {
    Kept(OwnedSnapshot),
    /// There was no machine.
    NoMachine,
    /// The snapshot could not be made.
    Failed,
}

/// A rewind that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PendingRewind {
    to: TurnPlace,
    /// Messages that stay of those before it, and the number of those.
    messages: (usize, usize),
}

/// Forks, rewinds and checkpoints of an execution.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ForkState {
    pub(crate) origin: Option<ForkOrigin>,
    rewinding: Option<PendingRewind>,
    /// Number of rewinds.
    pub(crate) rewinds: usize,
    /// Outcome of the last rewind.
    pub(crate) rewound: Option<Result<RewoundMachine, Box<ToolError>>>,
    checkpoints: BTreeMap<TurnPlace, KeptCheckpoint>,
    /// Checkpoints of turns that were dropped, the oldest first.
    stale: Vec<OwnedSnapshot>,
}

impl KeptCheckpoint {
    fn snapshot(&self) -> Option<&OwnedSnapshot> {
        match self {
            Self::Kept(snapshot) => Some(snapshot),
            Self::NoMachine | Self::Failed => None,
        }
    }
}

impl ForkState {
    /// Place that a rewind which is asked for goes to.
    pub(crate) fn rewinding(&self) -> Option<TurnPlace> {
        self.rewinding.map(|pending| pending.to)
    }

    /// Last place whose snapshot is kept.
    pub(crate) fn last_kept(&self) -> Option<TurnPlace> {
        let kept = |(place, kept): (&TurnPlace, &KeptCheckpoint)| kept.snapshot().map(|_| *place);
        self.checkpoints.iter().rev().find_map(kept)
    }

    pub(crate) fn checkpoint(&self, place: TurnPlace) -> Option<&KeptCheckpoint> {
        self.checkpoints.get(&place)
    }

    /// Snapshots that are kept, those that are missed least first.
    pub(in crate::execution) fn kept(&self) -> impl Iterator<Item = &OwnedSnapshot> {
        self.stale.iter().chain(self.checkpoints.values().filter_map(KeptCheckpoint::snapshot))
    }
}

impl ExecutionState {
    /// State that records add up to.
    ///
    /// # Errors
    /// `internal` for records that are no execution's.
    pub(crate) fn of(records: &[Record]) -> Result<Self, ToolError> {
        let broken =
            |record: &Record| ToolError::internal(format!("{record:.60?} does not follow"));
        let (first, more) =
            records.split_first().ok_or_else(|| ToolError::internal("no records"))?;
        let mut state = Self::begin(first.clone()).map_err(|record| broken(&record))?;
        for record in more {
            state.apply(record.clone()).map_err(|record| broken(&record))?;
        }
        Ok(state)
    }

    /// Place behind the last turn.
    pub(crate) fn place(&self) -> TurnPlace {
        let (iteration, turns) = self.next_turn();
        TurnPlace { iteration, turns }
    }

    /// Machine that a fork begins with, until it has it.
    pub(in crate::execution) fn inherited_machine(&self) -> Option<&OwnedSnapshot> {
        self.forks.origin.as_ref()?.machine.as_ref().filter(|_| self.workspace.is_none())
    }

    /// Program that another execution began in the iteration that goes on.
    pub(crate) fn forked_program(&self) -> Option<&ForkedProgram> {
        let origin = self.forks.origin.as_ref()?;
        origin.program.as_ref().filter(|_| origin.place.iteration + 1 == self.iterations.len())
    }

    /// Follows a record; `None` for one that cannot be.
    pub(in crate::execution) fn follow_fork(
        &mut self,
        record: &ForkRecord,
        at: DateTime<Utc>,
    ) -> Option<()> {
        let (over, said) = (self.end.is_some(), self.account.messages.len());
        let forks = Arc::make_mut(&mut self.forks);
        match record {
            ForkRecord::Inherited(origin) => {
                forks.origin.is_none().then(|| forks.origin = Some(origin.clone()))?;
                self.tokens = 0;
                Arc::make_mut(&mut self.account).inherited();
                self.goes_on(at);
            }
            ForkRecord::RewindAsked { to, messages, .. } if !over => {
                let pending = PendingRewind { to: *to, messages: (*messages, said) };
                forks.rewinding.is_none().then(|| forks.rewinding = Some(pending))?;
            }
            ForkRecord::Rewound { machine } if !over => {
                let PendingRewind { to, messages } = forks.rewinding.take()?;
                forks.rewinds += 1;
                forks.rewound = Some(Ok(*machine));
                let dropped = forks.checkpoints.split_off(&TurnPlace { turns: to.turns + 1, ..to });
                forks.stale.extend(dropped.values().filter_map(|it| it.snapshot().cloned()));
                self.drop_behind(to, messages, at)?;
            }
            ForkRecord::RewindFailed { error } if !over => {
                forks.rewinding.take()?;
                forks.rewound = Some(Err(error.clone()));
            }
            // An end overtook them.
            ForkRecord::RewindAsked { .. }
            | ForkRecord::Rewound { .. }
            | ForkRecord::RewindFailed { .. } => {}
            ForkRecord::Checkpointed { place, kept, removed, error, .. } => {
                let stays = |kept: &OwnedSnapshot| !removed.contains(&kept.snapshot);
                forks.stale.retain(stays);
                forks.checkpoints.retain(|_, kept| kept.snapshot().is_none_or(stays));
                let kept = match (kept, error) {
                    (Some(kept), _) => KeptCheckpoint::Kept(kept.clone()),
                    (None, None) => KeptCheckpoint::NoMachine,
                    (None, Some(_)) => KeptCheckpoint::Failed,
                };
                forks.checkpoints.insert(*place, kept);
            }
        }
        Some(())
    }

    fn drop_behind(
        &mut self,
        to: TurnPlace,
        messages: (usize, usize),
        at: DateTime<Utc>,
    ) -> Option<()> {
        self.iterations.truncate(to.iteration + 1);
        let last = Arc::make_mut(self.iterations.get_mut(to.iteration)?);
        last.turns.truncate(to.turns);
        last.error = None;
        self.said = last.turns.last().map(|turn| turn.answer.text.as_str().into());
        Arc::make_mut(&mut self.judging).drop_behind(to);
        self.compaction.drop_behind(to);
        Arc::make_mut(&mut self.after).drop_behind(to);
        let read = |iteration: &Arc<Iteration>| {
            let failed = iteration.error.is_some().then_some(iteration.messages);
            let turns = iteration.turns.iter().map(|turn| turn.answer.messages_read);
            turns.chain(failed).max().unwrap_or(0)
        };
        let read = self.iterations.iter().map(read).max().unwrap_or(0);
        Arc::make_mut(&mut self.account).rewound(messages, read, at);
        self.goes_on(at);
        Some(())
    }

    /// Goes on with the last turn, whose calls were set aside, and with the whole time of an iteration.
    fn goes_on(&mut self, at: DateTime<Utc>) {
        let TurnPlace { iteration, turns } = self.place();
        if let Some(last) = turns.checked_sub(1) {
            Arc::make_mut(&mut self.account).admitted((iteration, last));
        }
        if let Some(last) = self.iterations.last_mut() {
            Arc::make_mut(last).at = at;
        }
    }
}
