//! Stock of the pool. Pure: it returns orders, and the actor carries them out.
//!
//! ```text
//!  nothing ─ look ─► known what it would be made from
//!                      │ copies are possible          │ they are not, or the template failed
//!                      ▼                              ▼
//!               template: boot, save, stop          boot ─► ready
//!                      └─ copy ─► ready ─┬─ take ─► a workspace of somebody's
//!                                        └─ ended, out of date, too many ─► discard
//! ```

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use hivekeep_kernel::WorkspaceId;

use super::{MadeOf, Pooled, Role, WorkspaceSpec};
use crate::phase::Phase;

/// The wait after a first failure; doubled after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Copies that fail in a row until their template is made anew.
const FAULTY_TEMPLATE: u32 = 3;

/// Something that shall be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    /// Find out what a machine of a class would be made from now.
    Look(usize),
    /// Make the machine that the others of a class are copies of.
    Template(usize),
    /// Bring a template that an earlier daemon left to its end.
    Finish(usize, WorkspaceId),
    /// Make one machine, as a copy of this template if there is one.
    Member(usize, Option<WorkspaceId>),
    /// Remove a machine.
    Discard(WorkspaceId),
}

/// A machine that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) id: WorkspaceId,
    made_of: MadeOf,
    /// The machine answers; otherwise an earlier daemon left it and it is being taken up.
    pub(super) up: bool,
}

/// The machine that a class's machines are copies of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    pub(super) id: WorkspaceId,
    made_of: MadeOf,
    /// The template was saved, and does not run.
    pub(super) complete: bool,
}

/// The last thing that failed.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) reason: String,
    pub(super) in_a_row: u32,
    pub(super) again_at: Instant,
}

/// Outcome of a piece of work.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Digest of what a machine would be made from now.
    Looked(MadeOf),
    /// A machine was made and runs.
    Member(WorkspaceId, MadeOf),
    /// A template was made.
    Template(WorkspaceId, MadeOf),
    /// A machine of this class cannot be saved, for this reason.
    NoCopies(String),
    /// Nothing was made, for want of a slot.
    Crowded(String),
    /// Nothing was made.
    Failed(String),
    /// The machine that was to be copied or finished is of no use.
    Unfit(WorkspaceId, String),
}

/// Machines and state of one class.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) spec: WorkspaceSpec,
    pub(super) wanted: usize,
    pub(super) members: Vec<Member>,
    pub(super) template: Option<Template>,
    /// Why machines boot instead of being copied; `None` while they are copied.
    pub(super) boots_because: Option<String>,
    /// Machines of this kind can be copied.
    copies: bool,
    /// Digest of what a machine would be made from, as last looked at.
    pub(super) made_of: Option<MadeOf>,
    /// A piece of work is under way; there is one at a time.
    pub(super) busy: bool,
    pub(super) failure: Option<Failure>,
    /// Creations that took a machine; below, those that found none ready.
    pub(super) claimed: u64,
    pub(super) missed: u64,
}

/// All classes.
#[derive(Debug, Default)]
pub(super) struct Stock {
    pub(super) shelves: Vec<Shelf>,
    /// Machines that are being removed.
    leaving: BTreeSet<WorkspaceId>,
    discards: Vec<WorkspaceId>,
    halted: bool,
}

impl Stock {
    /// Empty shelves; each class comes with the reason why its machines cannot be copied, if any.
    pub(super) fn new(
        classes: impl IntoIterator<Item = (WorkspaceSpec, usize, Option<String>)>,
    ) -> Self {
        let shelf = |(spec, wanted, boots_because): (_, _, Option<String>)| Shelf {
            spec,
            wanted,
            members: Vec::new(),
            template: None,
            copies: boots_because.is_none(),
            boots_because,
            made_of: None,
            busy: false,
            failure: None,
            claimed: 0,
            missed: 0,
        };
        Self { shelves: classes.into_iter().map(shelf).collect(), ..Self::default() }
    }

    /// Takes up a machine that an earlier daemon, or an earlier incarnation of this actor, left.
    pub(super) fn found(
        &mut self,
        id: WorkspaceId,
        spec: &WorkspaceSpec,
        pooled: &Pooled,
        phase: Phase,
    ) {
        let shelf = self.shelves.iter_mut().find(|shelf| shelf.spec == *spec);
        let Pooled { role, made_of } = pooled.clone();
        match (shelf, role) {
            (Some(shelf), Role::Template) if shelf.template.is_none() => {
                shelf.template = Some(Template { id, made_of, complete: false });
            }
            (Some(shelf), Role::Member) => {
                shelf.members.push(Member { id, made_of, up: false });
                self.phase(id, phase);
            }
            _ => self.discard(id),
        }
    }

    /// Notes that a machine's state changed.
    pub(super) fn phase(&mut self, id: WorkspaceId, phase: Phase) {
        let members = self.shelves.iter_mut().flat_map(|shelf| &mut shelf.members);
        let Some(member) = members.into_iter().find(|member| member.id == id) else { return };
        match phase {
            Phase::Running => member.up = true,
            Phase::Creating | Phase::Starting => member.up = false,
            Phase::Paused
            | Phase::HostDiskFull
            | Phase::Stopping
            | Phase::Stopped
            | Phase::Parked
            | Phase::Crashed
            | Phase::Failed
            | Phase::Destroying => self.discard(id),
        }
    }

    /// Gives away a ready machine of exactly this spec and digest.
    pub(super) fn take(&mut self, spec: &WorkspaceSpec, made_of: &MadeOf) -> Option<WorkspaceId> {
        let shelf = self.shelves.iter_mut().find(|shelf| shelf.spec == *spec)?;
        shelf.learn(made_of.clone());
        // The oldest first, so that none grows old.
        let fits = |member: &Member| member.up && member.made_of == *made_of;
        match shelf.members.iter().position(fits) {
            Some(at) => {
                shelf.claimed += 1;
                Some(shelf.members.remove(at).id)
            }
            None => {
                shelf.missed += 1;
                None
            }
        }
    }

    /// Notes that a machine that was given away was of no use.
    pub(super) fn spoilt(&mut self, spec: &WorkspaceSpec, id: WorkspaceId) {
        if let Some(shelf) = self.shelves.iter_mut().find(|shelf| shelf.spec == *spec) {
            shelf.claimed = shelf.claimed.saturating_sub(1);
            shelf.missed += 1;
        }
        self.discard(id);
    }

    /// Gives up a machine so that its slot becomes free: one of the fullest class, else a template. No order
    /// to discard it follows: the caller does that.
    pub(super) fn evict(&mut self) -> Option<WorkspaceId> {
        let fullest = self.shelves.iter_mut().max_by_key(|shelf| shelf.members.len())?;
        let id = match fullest.members.pop() {
            Some(member) => member.id,
            // Copies that are being made of a template hold its files.
            None => self.shelves.iter_mut().find_map(|shelf| shelf.template.take())?.id,
        };
        self.leaving.insert(id);
        Some(id)
    }

    /// Notes the outcome of a class's work.
    pub(super) fn done(&mut self, at: usize, outcome: Outcome, now: Instant) {
        let Some(shelf) = self.shelves.get_mut(at) else { return };
        shelf.busy = false;
        if matches!(outcome, Outcome::Member(..) | Outcome::Template(..)) {
            shelf.failure = None;
        }
        match outcome {
            Outcome::Looked(made_of) => shelf.learn(made_of),
            Outcome::Member(id, made_of) => {
                shelf.members.push(Member { id, made_of, up: true });
            }
            Outcome::Template(id, made_of) => {
                shelf.template = Some(Template { id, made_of, complete: true });
            }
            Outcome::NoCopies(reason) => shelf.boots_because = Some(reason),
            Outcome::Crowded(reason) => drop(shelf.fail(reason, now)),
            Outcome::Failed(reason) => {
                let in_a_row = shelf.fail(reason, now);
                if in_a_row.is_multiple_of(FAULTY_TEMPLATE)
                    && let Some(template) = shelf.template.take()
                {
                    self.discard(template.id);
                }
            }
            Outcome::Unfit(id, reason) => {
                shelf.fail(reason, now);
                shelf.template.take_if(|template| template.id == id);
                self.discard(id);
            }
        }
    }

    /// Notes that a machine is gone, or queues another try when it could not be removed.
    pub(super) fn discarded(&mut self, id: WorkspaceId, gone: bool) {
        if gone {
            self.leaving.remove(&id);
        } else {
            self.discards.push(id);
        }
    }

    /// Stops all making and removing.
    pub(super) fn halt(&mut self) {
        self.halted = true;
    }

    /// Orders a new look at what machines are made from.
    pub(super) fn doubt(&mut self) -> Vec<Order> {
        if self.halted {
            return Vec::new();
        }
        let idle = self.shelves.iter_mut().enumerate().filter(|(_, shelf)| !shelf.busy);
        let look = |(at, shelf): (_, &mut Shelf)| {
            shelf.busy = true;
            Order::Look(at)
        };
        idle.map(look).collect()
    }

    /// Orders that are due now. Each is given once.
    pub(super) fn orders(&mut self, now: Instant) -> Vec<Order> {
        if self.halted {
            return Vec::new();
        }
        for at in 0..self.shelves.len() {
            for id in self.shelves[at].weed() {
                self.discard(id);
            }
        }
        let mut orders: Vec<_> = self.discards.drain(..).map(Order::Discard).collect();
        for (at, shelf) in self.shelves.iter_mut().enumerate() {
            if let Some(order) = shelf.order(at, now) {
                shelf.busy = true;
                orders.push(order);
            }
        }
        orders
    }

    /// Time until failed work is due again.
    pub(super) fn due(&self, now: Instant) -> Option<Duration> {
        let waits = self.shelves.iter().filter(|shelf| !shelf.busy && shelf.lacks());
        waits
            .filter_map(|shelf| {
                Some(shelf.failure.as_ref()?.again_at.saturating_duration_since(now))
            })
            .min()
    }

    fn discard(&mut self, id: WorkspaceId) {
        self.shelves.iter_mut().for_each(|shelf| shelf.members.retain(|member| member.id != id));
        if self.leaving.insert(id) {
            self.discards.push(id);
        }
    }
}

impl Shelf {
    /// Number of members that answer.
    pub(super) fn ready(&self) -> usize {
        self.members.iter().filter(|member| member.up).count()
    }

    /// Notes the present digest; a new one resets failures and the reason to boot.
    fn learn(&mut self, made_of: MadeOf) {
        if self.made_of.as_ref() == Some(&made_of) {
            return;
        }
        self.made_of = Some(made_of);
        self.failure = None;
        if self.copies {
            self.boots_because = None;
        }
    }

    fn lacks(&self) -> bool {
        self.members.len() < self.wanted
    }

    fn fail(&mut self, reason: String, now: Instant) -> u32 {
        let in_a_row = self.failure.as_ref().map_or(0, |failure| failure.in_a_row) + 1;
        let doubled = FIRST_WAIT.saturating_mul(1 << (in_a_row - 1).min(10));
        let again_at = now + doubled.min(LONGEST_WAIT);
        self.failure = Some(Failure { reason, in_a_row, again_at });
        in_a_row
    }

    /// Takes out machines that are out of date or too many.
    fn weed(&mut self) -> Vec<WorkspaceId> {
        let Some(now) = &self.made_of else { return Vec::new() };
        let mut out = Vec::new();
        self.members.retain(|member| {
            let fits = member.made_of == *now;
            if !fits {
                out.push(member.id);
            }
            fits
        });
        let surplus = self.members.len().saturating_sub(self.wanted);
        out.extend(self.members.drain(..surplus).map(|member| member.id));
        // A template stays while a copy of it may be being made.
        let stale = self.template.take_if(|template| !self.busy && template.made_of != *now);
        if let Some(template) = stale {
            out.push(template.id);
        }
        out
    }

    fn order(&self, at: usize, now: Instant) -> Option<Order> {
        let waits = self.failure.as_ref().is_some_and(|failure| failure.again_at > now);
        if self.busy || waits {
            return None;
        }
        if self.made_of.is_none() {
            return Some(Order::Look(at));
        }
        if !self.lacks() {
            return None;
        }
        match &self.template {
            _ if self.boots_because.is_some() => Some(Order::Member(at, None)),
            None => Some(Order::Template(at)),
            Some(template) if template.complete => Some(Order::Member(at, Some(template.id))),
            Some(template) => Some(Order::Finish(at, template.id)),
        }
    }
}

#[cfg(test)]
mod tests;
