//! A change's way from the decision to the journal, to the kernel, to the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use hivekeep_kernel::{Fault, ToolError, fault_point};
use serde_json::json;

use super::change::{Change, When};
use super::enforce::{Attempt, Plan};
use super::{Inner, Msg, NetworkActor};
use crate::AppliedPlan;
use crate::plan::{NetworkPlan, PlanError};

impl NetworkActor {
    /// Has a change written that `decided` has already.
    pub(super) fn enact(&mut self, change: Change) {
        self.accept_for(change.id);
        self.unwritten.push(change);
        self.write();
    }

    /// Begins to write what waits, unless something is being written: what comes meanwhile goes
    /// together.
    fn write(&mut self) {
        if self.writing || self.unwritten.is_empty() {
            return;
        }
        self.writing = true;
        let changes = std::mem::take(&mut self.unwritten);
        let (shared, actor) = (self.shared.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            let outcome = shared.logs.write(&shared.journal, &changes).await;
            let outcome = outcome.map_err(ToolError::from);
            // An actor that is gone is followed by one that reads the journal.
            let _ = actor.send(Msg(Inner::Written(changes, outcome)));
        });
    }

    /// After a failure only the journal knows what is durable, so the next incarnation asks it.
    pub(super) fn written(
        &mut self,
        changes: Vec<Change>,
        outcome: Result<(), ToolError>,
    ) -> Result<(), Fault> {
        if let Err(error) = outcome {
            let waiting = changes.into_iter().chain(std::mem::take(&mut self.unwritten));
            waiting.for_each(|change| change.done(Err(error.clone())));
            return Err(Fault::new(format!("the network could not be recorded: {error}")));
        }
        self.writing = false;
        let mut changed = false;
        for change in changes.iter().filter(|change| change.is_any()) {
            changed = true;
            put(&mut self.durable, change).map_err(|refused| {
                Fault::new(format!("a change does not fit those before it: {refused}"))
            })?;
        }
        let has_kernel = self.orders.is_some();
        if changed {
            fault_point!("network.after_durable");
            self.generation += 1;
            let network = Arc::new(self.durable.clone());
            self.shared.newest.store(self.generation, SeqCst);
            self.plan.send_replace(Plan { generation: self.generation, network });
        }
        if !has_kernel {
            self.applied = self.generation;
            self.in_force = Arc::new(self.durable.clone());
            self.let_go();
        }
        self.show();
        for change in changes {
            if change.when == When::Applied && self.applied < self.generation {
                self.waiting.push((self.generation, change));
            } else {
                change.done(Ok(()));
            }
        }
        self.write();
        Ok(())
    }

    /// The worker has followed a plan, or failed to.
    pub(super) fn followed(&mut self, attempt: Attempt) {
        let Attempt { plan, outcome, no_names } = attempt;
        let due = plan.generation;
        let changes: Vec<_> = self.waiting.extract_if(.., |(at, _)| *at <= due).collect();
        let askers: Vec<_> = self.settling.extract_if(.., |(at, _)| *at <= due).collect();
        let outcome = match outcome {
            Ok(applied) => {
                self.applied = plan.generation;
                self.in_force = plan.network;
                self.condition.names = no_names;
                self.condition.kernel = None;
                self.note(&applied);
                self.wake_by_packets();
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "the kernel does not follow the plan");
                self.condition.kernel = Some(error.to_string());
                Err(ToolError::from(&error))
            }
        };
        self.let_go();
        self.show();
        self.say_condition();
        for (_, asker) in askers {
            // Whoever asked may have gone.
            let _ = asker.send(outcome.clone());
        }
        for (_, change) in changes {
            match &outcome {
                Ok(()) => {
                    fault_point!("network.after_applied");
                    change.done(Ok(()));
                }
                Err(error) => self.undo(change, error.clone()),
            }
        }
    }

    /// Undoes a change that the kernel refused, unless there is a later decision.
    fn undo(&mut self, change: Change, error: ToolError) {
        let current = self.decided.member(change.id) == change.after.as_ref();
        if let (true, Some(before)) = (current && change.is_any(), &change.before)
            && self.decided.admit(change.id, before.clone()).is_ok()
        {
            self.enact(change.undone(error));
        } else {
            change.done(Err(error));
        }
    }

    /// The worker has looked at everything.
    pub(super) fn checked(&mut self, applied: AppliedPlan) {
        self.note(&applied);
        self.hold_ports();
        self.say_condition();
    }

    /// Reports findings beside the plan.
    fn note(&mut self, applied: &AppliedPlan) {
        if !applied.repaired.is_empty() {
            tracing::warn!(repaired = ?applied.repaired, "others had changed the network");
            let data = json!({ "repaired": applied.repaired });
            self.shared.tell("network.repaired", "host", data);
        }
        self.condition.obstacles =
            applied.obstacles.iter().map(|obstacle| obstacle.chain.clone()).collect();
    }

    /// Lets go of the ports of forwards that are over, in the kernel too.
    fn let_go(&mut self) {
        if self.applied == self.generation && self.unwritten.is_empty() && !self.writing {
            self.held.rest(&self.decided);
            self.held.keep_only(&self.decided);
        }
    }
}

fn put(network: &mut NetworkPlan, change: &Change) -> Result<(), PlanError> {
    match &change.after {
        Some(member) => network.admit(change.id, member.clone()),
        None => {
            network.dismiss(change.id);
            Ok(())
        }
    }
}
