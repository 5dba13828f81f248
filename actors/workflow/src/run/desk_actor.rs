//! Actor that puts the questions of runs to people, and reads and settles what they came to.

use std::{collections::BTreeSet, sync::Arc};

use hivekeep_kernel::{
    ApprovalId, Context, Entity, Fault, ToolError,
    codes::{BUSY, INVALID_INPUT, TOO_LARGE},
    lock,
};
use hivekeep_plan::progress::{NodeKey, NodePhase};
use hivekeep_ports::{QuestionState, StandingQuestions};
use hivekeep_runtime::runs::{Runs, WeakRuns};

use super::{
    RunFold, RunSaga, RunShared,
    children::DAEMON,
    desk::{QuestionDesk, TryQuestion, WaitingTry},
    people::{StepAnswer, answered},
    place::PAUSE,
    question::{QUESTIONER, question, replied},
};

/// See the module.
pub(crate) struct DeskActor;

impl Entity for DeskActor {
    type Msg = ();
    type Args = Arc<RunShared>;

    async fn start(shared: Arc<RunShared>, me: Context<()>) -> Result<Self, Fault> {
        let _detached = me.workers.spawn(async move { shared.tend_questions().await });
        Ok(Self)
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }
}

impl RunShared {
    async fn tend_questions(&self) {
        let desk = &self.desk;
        let Some(people) = &desk.people else { return };
        let mut changes = people.changes();
        if let Some(runs) = self.runs.get().and_then(WeakRuns::upgrade) {
            runs.look_at_all(|run, state| {
                let waiting = state.work().into_iter().flat_map(|work| work.progress.waiting());
                waiting.for_each(|key| desk.waits(run, key));
            });
        }
        let mut is_first = true;
        while let Some(runs) = self.runs.get().and_then(WeakRuns::upgrade) {
            changes.borrow_and_update();
            let mut again = false;
            let all: Vec<_> =
                lock(&desk.waiting).iter().map(|(it, question)| (*it, question.clone())).collect();
            for (waiting, question) in all {
                if let Err(error) = desk.tend(&**people, &runs, waiting, question).await {
                    tracing::debug!(run = %waiting.0, %error, "its question is looked at again");
                    again = true;
                }
            }
            if std::mem::take(&mut is_first) {
                again |= desk.settle_others(&**people).await.is_err();
            }
            drop(runs);
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = desk.news.notified() => {}
                () = tokio::time::sleep(PAUSE), if again => {}
            }
        }
    }
}

impl QuestionDesk {
    /// Brings the question of a try to where the run and the approvals stand.
    async fn tend(
        &self,
        people: &dyn StandingQuestions,
        runs: &Runs<RunSaga>,
        waiting @ (run, key): WaitingTry,
        question: TryQuestion,
    ) -> Result<(), ToolError> {
        let waits = runs.look(run, |state| waits(state, key)).unwrap_or_default();
        match question {
            TryQuestion::Put(id) if !waits => {
                people.settle(id).await?;
                lock(&self.waiting).remove(&waiting);
            }
            TryQuestion::Open(_) if !waits => drop(lock(&self.waiting).remove(&waiting)),
            TryQuestion::Open(note) => {
                let asked = runs.look(run, |state| self::question(state, key, note.as_deref()));
                if let Some(asked) = asked.flatten() {
                    let id = people.put(asked).await?;
                    self.put(waiting, TryQuestion::Put(id));
                    // An answer from before the daemon's start may be there.
                    self.look();
                }
            }
            TryQuestion::Put(id) => match people.state(id) {
                QuestionState::Waits => {}
                QuestionState::Gone => {
                    self.put(waiting, TryQuestion::Open(None));
                    self.look();
                }
                QuestionState::Replied { by, reply } => {
                    let answer =
                        move |state: &RunFold| replied(state, key, &reply).ok_or_else(gone);
                    self.take(people, runs, waiting, id, by, answer).await?;
                }
                QuestionState::Refused { by, why } => {
                    let answer = move |_: &RunFold| Ok(StepAnswer::Reject { reason: why });
                    self.take(people, runs, waiting, id, by, answer).await?;
                }
            },
        }
        Ok(())
    }

    /// Has the run go on with an answer. One that does not fit is asked for again.
    async fn take(
        &self,
        people: &dyn StandingQuestions,
        runs: &Runs<RunSaga>,
        waiting @ (run, key): WaitingTry,
        id: ApprovalId,
        by: String,
        answer: impl FnOnce(&RunFold) -> Result<StepAnswer, ToolError> + Send + 'static,
    ) -> Result<(), ToolError> {
        let decide = move |state: &RunFold| {
            let answer = answer(state)?;
            answered(state, (key.node, Some(key.tries)), &answer, &by).map(|(decision, _)| decision)
        };
        match runs.tell(DAEMON, &run.to_string(), decide).await {
            Err(error) if error.is_any(&[INVALID_INPUT, TOO_LARGE]) => {
                people.settle(id).await?;
                self.put(waiting, TryQuestion::Open(Some(error.message)));
            }
            Err(error) if error.retryable || error.is(BUSY) => return Err(error),
            // A question that nothing waits for any more is settled at the next look.
            Ok(()) | Err(_) => {}
        }
        self.look();
        Ok(())
    }

    /// Settles questions of tries that do not wait: the daemon died between a record and this.
    async fn settle_others(&self, people: &dyn StandingQuestions) -> Result<(), ToolError> {
        let ours: BTreeSet<ApprovalId> = {
            let waiting = lock(&self.waiting);
            let put = waiting.values().filter_map(|question| match question {
                TryQuestion::Put(id) => Some(*id),
                TryQuestion::Open(_) => None,
            });
            put.collect()
        };
        for id in people.standing(QUESTIONER).into_iter().filter(|id| !ours.contains(id)) {
            people.settle(id).await?;
        }
        Ok(())
    }
}

fn waits(state: &RunFold, key: NodeKey) -> bool {
    let node = state.work().and_then(|work| work.progress.node(key.node));
    node.is_some_and(|node| node.tries == key.tries && node.phase == NodePhase::Waits)
}

fn gone() -> ToolError {
    ToolError::cancelled()
}
