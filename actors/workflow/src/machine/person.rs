//! Question to a person, and the answers to it: early ones wait for the state that takes them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{RunId, ToolError, codes};
use hivekeep_manifest::workflow::WorkflowState;
use hivekeep_plan::{
    machine::{StateOutput, takes_response},
    progress::{NodePhase, ProgressRecord},
};
use hivekeep_runtime::{log::Decision, runs::RunCaller, saga::SagaState};

use super::{records::MachineRecord, visit::StateVisit};
use crate::{
    DagRuns,
    run::{RunFold, RunRecord, RunText},
};

/// Most bytes of an answer, and most answers that wait.
const ANSWER_BYTES: usize = 64 * 1024;
const EARLY_ANSWERS: usize = 16;

impl DagRuns {
    /// Gives an answer to the state that waits for a person, or to the next one that takes it. False where no state
    /// that the run can come to takes it, and where the run is over.
    ///
    /// # Errors
    /// `run_not_found`, `journal_failed`; `invalid_input` for a longer one than 64 KiB.
    pub async fn signal(
        &self,
        caller: RunCaller,
        id: RunId,
        response: String,
    ) -> Result<bool, ToolError> {
        if response.len() > ANSWER_BYTES {
            let message = format!("an answer has at most {ANSWER_BYTES} bytes");
            return Err(ToolError::invalid(message).next("give a shorter answer"));
        }
        let taken = Arc::new(AtomicBool::new(false));
        let taking = taken.clone();
        let decide = move |run: &RunFold| {
            let record = run.signalled(response);
            taking.store(record.is_some(), Ordering::Release);
            Ok(record.map_or_else(Decision::nothing, Decision::record))
        };
        match self.0.tell(caller, &id.to_string(), decide).await {
            Err(error) if error.is(codes::RUN_OVER) => Ok(false),
            told => told.map(|()| taken.load(Ordering::Acquire)),
        }
    }
}

impl RunFold {
    /// Record of an answer; none where no state takes it.
    fn signalled(&self, response: String) -> Option<RunRecord> {
        let RunText::Workflow(text) = &self.begun.text else { return None };
        let (machine, spec) = (self.machine.as_ref()?, &text.manifest.spec);
        if self.is_cancelled() {
            return None;
        }
        let current = self.work().and_then(|work| {
            let key = work.progress.current()?;
            Some((key, &work.progress.node(key.node)?.phase))
        });
        if let Some((key, NodePhase::Waits)) = current {
            let at = StateVisit::of(self, text, key)?;
            return takes_response(spec, at.state, &response).then(|| at.answered(response));
        }
        let at = current.and_then(|(key, phase)| Some((StateVisit::of(self, text, key)?, phase)));
        let begins = match &at {
            None => vec![spec.initial_state.as_str()],
            Some((at, NodePhase::Open | NodePhase::Entered)) => vec![at.name.as_str()],
            Some((at, _)) => at.state.transitions().iter().map(|it| it.target.as_str()).collect(),
        };
        let (mut open, mut seen) = (begins, std::collections::BTreeSet::new());
        while let Some(name) = open.pop() {
            let Some(state) = spec.states.get(name).filter(|_| seen.insert(name)) else { continue };
            if takes_response(spec, state, &response) {
                let room = machine.signals.len() < EARLY_ANSWERS;
                return room.then(|| RunRecord::Signalled { response, at: Utc::now() });
            }
            open.extend(state.transitions().iter().map(|it| it.target.as_str()));
        }
        None
    }

    /// Time that ends the wait of a state, of one that waits without an actor.
    pub(crate) fn machine_wakes_at(&self) -> Option<DateTime<Utc>> {
        let progress = &self.work()?.progress;
        let current = progress.node(progress.current()?.node)?;
        let waits = matches!(current.phase, NodePhase::Waits | NodePhase::Children(_));
        self.machine.as_ref()?.ends_at.filter(|_| waits)
    }

    /// Record of the end of a state whose time is over and that has no actor.
    pub(crate) fn machine_woken(&self) -> Option<RunRecord> {
        let RunText::Workflow(text) = &self.begun.text else { return None };
        let at = StateVisit::of(self, text, self.work()?.progress.current()?)?;
        Some(at.ended(match at.state {
            WorkflowState::Human { default_response: Some(response), .. } => {
                StateOutput::human(response, true)
            }
            _ => at.failure("its time is over"),
        }))
    }
}

impl StateVisit<'_> {
    /// Record of the question.
    pub(super) fn asked(&self, prompt: String) -> RunRecord {
        RunRecord::machine(
            ProgressRecord::Waits { key: self.key, at: Utc::now() },
            MachineRecord::Asked { state: self.name.clone(), prompt },
        )
    }

    /// Record of an answer that the state takes.
    pub(super) fn answered(&self, response: String) -> RunRecord {
        self.ended(StateOutput::human(&response, false))
    }

    /// Record of the first answer that came before and that the state takes.
    pub(super) fn early(&self, run: &RunFold) -> Option<RunRecord> {
        let takes = |response: &&String| takes_response(self.spec(), self.state, response);
        let response = run.machine.as_ref()?.signals.iter().find(takes)?;
        Some(self.answered(response.clone()))
    }
}
