//! Lease per target: at most one merge into a workspace at a time.

use std::sync::Arc;

use dashmap::{DashMap, DashSet};
use hivekeep_kernel::{Layer, ToolError, WorkspaceId};

use crate::codes;

/// All merges of this daemon that go on. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Merges {
    targets: Arc<DashMap<WorkspaceId, String>>,
    ids: Arc<DashSet<String>>,
}

impl Merges {
    /// Begins a merge into a target.
    ///
    /// # Errors
    /// `merge_in_progress`.
    pub fn begin(&self, target: WorkspaceId) -> Result<RunningMerge, ToolError> {
        let id = uuid::Uuid::now_v7().simple().to_string();
        match self.targets.entry(target) {
            dashmap::Entry::Occupied(_) => {
                let message = "another merge into this workspace goes on";
                Err(ToolError::new(Layer::Actor, codes::MERGE_IN_PROGRESS, message)
                    .next("repeat when it has ended")
                    .retry_after(std::time::Duration::from_secs(1)))
            }
            dashmap::Entry::Vacant(free) => {
                self.ids.insert(id.clone());
                free.insert(id.clone());
                Ok(RunningMerge { id, target, all: self.clone() })
            }
        }
    }
}

/// Running merge; it ends when this is dropped.
#[derive(Debug)]
pub struct RunningMerge {
    /// Id that marks its temporary files and refs.
    pub(super) id: String,
    target: WorkspaceId,
    all: Merges,
}

impl RunningMerge {
    /// Id of the merge.
    #[cfg(test)]
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// True if a running merge has this id.
    pub(super) fn is_going_on(&self, id: &str) -> bool {
        self.all.ids.contains(id)
    }
}

impl Drop for RunningMerge {
    fn drop(&mut self) {
        self.all.ids.remove(&self.id);
        self.all.targets.remove_if(&self.target, |_, id| *id == self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_per_target_at_a_time() {
        let (merges, one, two) = (Merges::default(), WorkspaceId::new(), WorkspaceId::new());
        let first = merges.begin(one).expect("begun");
        assert_eq!(merges.begin(one).expect_err("both").code, "merge_in_progress");
        let second = merges.begin(two).expect("another target");
        assert!(first.is_going_on(&second.id) && !first.is_going_on("other"));
        drop(first);
        assert!(merges.begin(one).is_ok());
    }
}
