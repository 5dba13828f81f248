//! Results that were received, remembered so that a repeat of their tasks runs nothing.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::Kept;

/// Tasks that are remembered; the guest remembers as many.
const MOST: usize = 1_000;
/// What is shown of the outputs of all of them. The oldest are remembered without.
const MOST_BYTES: usize = 2 * 1024 * 1024;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// The oldest first.
    order: VecDeque<String>,
    kept: HashMap<String, Arc<Kept>>,
    bytes: usize,
    /// So many of the oldest are without outputs.
    bare: usize,
}

impl Known {
    /// One more. Names those that are forgotten for it.
    pub(super) fn add(&mut self, kept: Arc<Kept>) -> Vec<String> {
        self.bytes += kept.bytes;
        self.order.push_back(kept.task_id.clone());
        self.kept.insert(kept.task_id.clone(), kept);
        let mut forgotten = Vec::new();
        while self.order.len() > MOST
            && let Some(id) = self.order.pop_front()
        {
            self.bytes -= self.kept.remove(&id).map_or(0, |kept| kept.bytes);
            self.bare = self.bare.saturating_sub(1);
            forgotten.push(id);
        }
        while self.bytes > MOST_BYTES
            && let Some(id) = self.order.get(self.bare)
        {
            self.bare += 1;
            if let Some(kept) = self.kept.get_mut(id) {
                let bare = kept.without_output();
                self.bytes = self.bytes + bare.bytes - kept.bytes;
                *kept = Arc::new(bare);
            }
        }
        forgotten
    }

    pub(super) fn get(&self, task_id: &str) -> Option<&Arc<Kept>> {
        self.kept.get(task_id)
    }

    /// The oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Kept>> {
        self.order.iter().filter_map(|id| self.kept.get(id))
    }
}
