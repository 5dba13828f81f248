//! Claims of a creation before it is durable: a name, a slot, the session's quota.

use crate::records::Planned;

/// Gives back what was claimed for a plan; the flag says whether its quota was reserved.
pub(crate) type GiveBack = Box<dyn Fn(&Planned, bool) + Send + Sync>;

/// Claims of one creation; given back when dropped, unless kept.
pub(crate) struct Claims {
    plan: Planned,
    quota: bool,
    kept: bool,
    give_back: GiveBack,
}

impl Claims {
    pub(crate) fn new(plan: Planned, give_back: GiveBack) -> Self {
        Self { plan, quota: false, kept: false, give_back }
    }

    pub(crate) fn plan(&self) -> &Planned {
        &self.plan
    }

    /// The plan, whose slot and volumes are claimed after its name.
    pub(crate) fn plan_mut(&mut self) -> &mut Planned {
        &mut self.plan
    }

    /// The quota of the plan's owner is reserved: it is given back with the other claims.
    pub(crate) fn reserved(&mut self) {
        self.quota = true;
    }

    /// Keeps the claims: the plan is durable, or may be, so its workspace gives them back.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    /// Gives the claims back on drop again: the plan is not durable after all.
    pub(crate) fn unkeep(&mut self) {
        self.kept = false;
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        if !self.kept {
            (self.give_back)(&self.plan, self.quota);
        }
    }
}
