//! Usage of a quota by a session, a user or the host. Pure.

use hivekeep_kernel::Resources;

#[derive(Debug, Clone, Copy)]
pub(crate) struct QuotaUsage {
    used: Resources,
    limit: Resources,
}

/// The resource that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) name: &'static str,
    /// Usage that the request would lead to.
    pub(crate) wanted: u64,
    pub(crate) limit: u64,
}

impl QuotaUsage {
    pub(crate) fn new(limit: Resources) -> Self {
        Self { used: Resources::default(), limit }
    }

    /// Checks that all of it fits.
    pub(crate) fn check(&self, what: Resources) -> Result<(), Over> {
        let wanted = self.used.plus(what);
        // A resource that is over already, as after a lowered limit, does not stand
        // in the way of a request that takes none of it.
        let counted = Resources {
            workspaces: if what.workspaces > 0 { wanted.workspaces } else { 0 },
            memory_mb: if what.memory_mb > 0 { wanted.memory_mb } else { 0 },
            disk_gb: if what.disk_gb > 0 { wanted.disk_gb } else { 0 },
        };
        match counted.first_over(self.limit) {
            Some((name, wanted, limit)) => Err(Over { name, wanted, limit }),
            None => Ok(()),
        }
    }

    /// Counts it, limit or not.
    pub(crate) fn add(&mut self, what: Resources) {
        self.used = self.used.plus(what);
    }

    pub(crate) fn release(&mut self, what: Resources) {
        self.used = self.used.minus(what);
    }

    pub(crate) fn used(&self) -> Resources {
        self.used
    }

    pub(crate) fn limit(&self) -> Resources {
        self.limit
    }

    /// True when something is counted.
    pub(crate) fn holds(&self) -> bool {
        self.used != Resources::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reserve(usage: &mut QuotaUsage, what: Resources) -> Result<(), Over> {
        usage.check(what)?;
        usage.add(what);
        Ok(())
    }

    #[test]
    fn more_than_allowed_may_be_there_already() {
        let mut usage = QuotaUsage::new(Resources { workspaces: 1, memory_mb: 100, disk_gb: 1 });
        usage.add(Resources::workspace(500, 1));
        let disk = Resources { disk_gb: 1, ..Resources::default() };
        usage.release(disk);
        assert!(reserve(&mut usage, disk).is_ok());
        let over = reserve(&mut usage, Resources { memory_mb: 1, ..Resources::default() });
        assert_eq!(over, Err(Over { name: "memory_mb", wanted: 501, limit: 100 }));
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
            let (mut usage, mut held) = (QuotaUsage::new(limit), Vec::<Resources>::new());
            for (take, what) in steps {
                if take {
                    let fits = usage.used().plus(what).first_over(limit).is_none();
                    let took = reserve(&mut usage, what).is_ok();
                    prop_assert_eq!(took, fits);
                    if took {
                        held.push(what);
                    }
                } else if let Some(back) = held.pop() {
                    usage.release(back);
                }
                let sum = held.iter().fold(Resources::default(), |sum, one| sum.plus(*one));
                prop_assert_eq!(usage.used(), sum);
                prop_assert!(sum.first_over(limit).is_none());
            }
        }
    }
}
