//! What a session holds, against what it may hold. Pure.

use hivekeep_kernel::{Layer, Resources, ToolError};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Ledger {
    used: Resources,
    limit: Resources,
}

impl Ledger {
    pub(crate) fn new(limit: Resources) -> Self {
        Self { used: Resources::default(), limit }
    }

    /// Takes all of it or nothing.
    pub(crate) fn reserve(&mut self, what: Resources) -> Result<(), ToolError> {
        let wanted = self.used.plus(what);
        // What is already over, as after a lowered limit, does not stand in the
        // way of something that takes none of it.
        let counted = Resources {
            workspaces: if what.workspaces > 0 { wanted.workspaces } else { 0 },
            memory_mb: if what.memory_mb > 0 { wanted.memory_mb } else { 0 },
            disk_gb: if what.disk_gb > 0 { wanted.disk_gb } else { 0 },
        };
        if let Some((name, wanted, limit)) = counted.first_over(self.limit) {
            return Err(self.exceeded(name, wanted, limit, what));
        }
        self.used = wanted;
        Ok(())
    }

    pub(crate) fn release(&mut self, what: Resources) {
        self.used = self.used.minus(what);
    }

    /// Counts what is there, limit or not.
    pub(crate) fn restore(&mut self, what: Resources) {
        self.used = self.used.plus(what);
    }

    pub(crate) fn used(&self) -> Resources {
        self.used
    }

    pub(crate) fn limit(&self) -> Resources {
        self.limit
    }

    fn exceeded(&self, name: &str, wanted: u64, limit: u64, what: Resources) -> ToolError {
        let json =
            |amount: Resources| serde_json::to_value(amount).expect("three numbers serialise");
        let message = format!("the session would hold {wanted} {name} and may hold {limit}");
        ToolError::new(Layer::Quota, "quota_exceeded", message)
            .next(format!("destroy a workspace, ask for less, or raise registry.quota.max_{name}"))
            .detail("exceeded", name)
            .detail("used", json(self.used))
            .detail("wanted", json(what))
            .detail("allowed", json(self.limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_refusal_says_what_is_used_wanted_and_allowed() {
        let mut ledger = Ledger::new(Resources { workspaces: 2, memory_mb: 1024, disk_gb: 10 });
        ledger.reserve(Resources::workspace(768, 4)).expect("fits");
        let error = ledger.reserve(Resources::workspace(512, 4)).expect_err("over");
        assert_eq!((error.code.as_ref(), error.layer), ("quota_exceeded", Layer::Quota));
        assert_eq!(error.details["exceeded"], "memory_mb");
        assert_eq!(error.details["used"]["memory_mb"], 768);
        assert_eq!(error.details["wanted"]["memory_mb"], 512);
        assert_eq!(error.details["allowed"]["memory_mb"], 1024);
        assert_eq!(ledger.used(), Resources::workspace(768, 4), "a refusal takes nothing");
    }

    #[test]
    fn more_than_allowed_may_be_there_already() {
        let mut ledger = Ledger::new(Resources { workspaces: 1, memory_mb: 100, disk_gb: 1 });
        ledger.restore(Resources::workspace(500, 1));
        let disk = Resources { disk_gb: 1, ..Resources::default() };
        ledger.release(disk);
        assert!(ledger.reserve(disk).is_ok());
        assert!(ledger.reserve(Resources { memory_mb: 1, ..Resources::default() }).is_err());
    }

    fn amount() -> impl Strategy<Value = Resources> {
        (0u64..3, 0u64..600, 0u64..6).prop_map(|(workspaces, memory_mb, disk_gb)| Resources {
            workspaces,
            memory_mb,
            disk_gb,
        })
    }

    proptest! {
        #[test]
        fn never_over_and_never_lost(steps in prop::collection::vec((any::<bool>(), amount()), 1..60)) {
            let limit = Resources { workspaces: 4, memory_mb: 1000, disk_gb: 10 };
            let (mut ledger, mut held) = (Ledger::new(limit), Vec::<Resources>::new());
            for (take, what) in steps {
                if take {
                    let fits = ledger.used().plus(what).first_over(limit).is_none();
                    let took = ledger.reserve(what).is_ok();
                    prop_assert_eq!(took, fits);
                    if took {
                        held.push(what);
                    }
                } else if let Some(back) = held.pop() {
                    ledger.release(back);
                }
                let sum = held.iter().fold(Resources::default(), |sum, one| sum.plus(*one));
                prop_assert_eq!(ledger.used(), sum);
                prop_assert!(sum.first_over(limit).is_none());
            }
        }
    }
}
