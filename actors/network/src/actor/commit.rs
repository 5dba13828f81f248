//! A change's way from the decision to the journal, to the kernel, to the answer.
//!
//! Each member has a log of its own, so changes of several are written side by side; they become
//! durable, and are answered, in the order in which they were decided, since one may need what
//! another gave up.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use hivekeep_kernel::ports::NetworkView;
use hivekeep_kernel::{Fault, ToolError, fault_point};
use hivekeep_runtime::log::{Decision, LogError};
use serde_json::json;

use super::change::{Change, When};
use super::enforce::{Attempt, Plan};
use super::records::Record;
use super::{Inner, Msg, NetworkActor, convert, refuse};
use crate::Applied;
use crate::plan::{Network, Refused};

/// A change that was decided and is not known to be durable.
pub(super) struct Undurable {
    /// Never used again, also by no later incarnation: outcomes name it.
    number: u64,
    change: Change,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Writing,
    Written,
}

impl NetworkActor {
    /// Has a change written that `decided` has already.
    pub(super) fn enact(&mut self, change: Change) {
        let number = self.shared.changes.fetch_add(1, SeqCst);
        self.undurable.push_back(Undurable { number, change, stage: Stage::Waiting });
        self.write();
    }

    /// Begins to write what can be written: all but changes of a member whose removal is under way.
    fn write(&mut self) {
        let mut leaving = HashSet::new();
        for at in 0..self.undurable.len() {
            let Undurable { change, stage, .. } = &self.undurable[at];
            let (id, removal) = (change.id, change.is_removal());
            if *stage == Stage::Waiting && !leaving.contains(&id) {
                self.begin(at);
            }
            if removal && self.undurable[at].stage != Stage::Written {
                leaving.insert(id);
            }
        }
    }

    fn begin(&mut self, at: usize) {
        let Undurable { number, change, stage } = &mut self.undurable[at];
        *stage = Stage::Writing;
        let (number, id, actor) = (*number, change.id, self.me.address.clone());
        // An actor that is gone is followed by one that reads the journal.
        let written = move |outcome| drop(actor.send(Msg(Inner::Written(number, outcome))));
        if !change.is_any() {
            return written(Ok(()));
        }
        let log = self.shared.logs.of(&self.shared.journal, id);
        let Some(member) = change.after.clone() else {
            let shared = self.shared.clone();
            let _detached = self.me.workers.spawn(async move {
                let outcome = log.forget().await;
                shared.logs.drop(id);
                written(outcome);
            });
            return;
        };
        let decision = Decision::record(Record::Member(member));
        let decision = change.event().into_iter().fold(decision, Decision::event);
        let later = written.clone();
        if let Err(refused) = log.decide_then(|_| Ok::<_, LogError>(decision), later) {
            written(Err(refused));
        }
    }

    /// After a failure only the journal knows what is durable, so the next incarnation asks it.
    pub(super) fn written(
        &mut self,
        number: u64,
        outcome: Result<(), LogError>,
    ) -> Result<(), Fault> {
        // One that nobody knows was decided by an incarnation before.
        let known = self.undurable.iter_mut().find(|undurable| undurable.number == number);
        let Some(undurable) = known else { return Ok(()) };
        if let Err(error) = outcome {
            let told = ToolError::from(error.clone());
            self.undurable.drain(..).for_each(|one| one.change.done(Err(told.clone())));
            return Err(Fault::new(format!("the network could not be recorded: {error}")));
        }
        undurable.stage = Stage::Written;
        self.write();
        let whole = self.undurable.iter().take_while(|one| one.stage == Stage::Written).count();
        let changes = self.undurable.drain(..whole).map(|one| one.change).collect();
        self.durable(changes)
    }

    fn durable(&mut self, changes: Vec<Change>) -> Result<(), Fault> {
        if changes.is_empty() {
            return Ok(());
        }
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
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "the kernel does not follow the plan");
                self.condition.kernel = Some(error.to_string());
                Err(refuse::host(&error))
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

    /// Takes back what the kernel did not take, unless there is a later decision.
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
    pub(super) fn checked(&mut self, applied: Applied) {
        self.note(&applied);
        self.hold_ports();
        self.say_condition();
    }

    /// What came to light beside the plan.
    fn note(&mut self, applied: &Applied) {
        if !applied.repaired.is_empty() {
            tracing::warn!(repaired = ?applied.repaired, "others had changed the network");
            let data = json!({ "repaired": applied.repaired });
            self.shared.tell("network.repaired", "host", data);
        }
        self.condition.obstacles =
            applied.obstacles.iter().map(|obstacle| obstacle.chain.clone()).collect();
    }

    /// Takes the ports of forwards that are not held, and tells of those that it cannot have.
    pub(super) fn hold_ports(&mut self) {
        for (id, forward, why) in self.held.take_all(&self.decided) {
            tracing::warn!(workspace = %id, %why, "a forward's port is not held");
            let data = json!({ "forward": convert::forward(&forward), "reason": why });
            self.shared.tell("network.port_lost", id, data);
        }
    }

    /// Lets go of the ports of forwards that are over, in the kernel too.
    fn let_go(&mut self) {
        if self.applied == self.generation && self.undurable.is_empty() {
            self.held.keep_only(&self.decided);
        }
    }

    /// Lets everyone see the members: as they are in force, or as they are going to be.
    pub(super) fn show(&self) {
        let Some(backend) = &self.backend else { return };
        let subnet = self.durable.subnet();
        let view = |(id, member): (_, &crate::plan::Member)| {
            let now = self.in_force.member(id).unwrap_or(member);
            let view = NetworkView {
                attachment: backend.attachment(member.seat, subnet),
                policy: convert::policy(&backend.in_force(&now.policy)),
                forwards: now.forwards.iter().map(convert::forward).collect(),
            };
            (id, view)
        };
        let off = matches!(**backend, super::Backend::Off { .. });
        let members = self.durable.members().filter(|_| !off);
        self.shared.views.store(Arc::new(members.map(view).collect()));
    }
}

fn put(network: &mut Network, change: &Change) -> Result<(), Refused> {
    match &change.after {
        Some(member) => network.admit(change.id, member.clone()),
        None => {
            network.dismiss(change.id);
            Ok(())
        }
    }
}
