//! Results that were received, remembered so that a repeat of their tasks runs nothing.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::StoredResult;

/// Tasks that are remembered; the guest remembers as many.
const MOST: usize = 1_000;
/// Bytes of all their outputs. The oldest are remembered without.
const MOST_BYTES: usize = 2 * 1024 * 1024;

/// The results that are remembered.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// The oldest first.
    order: VecDeque<String>,
    results: HashMap<String, Arc<StoredResult>>,
    bytes: usize,
    /// So many of the oldest are without outputs.
    bare: usize,
}

impl Known {
    /// Adds one. Names those that are forgotten for it.
    pub(super) fn add(&mut self, result: Arc<StoredResult>) -> Vec<String> {
        self.bytes += result.bytes;
        self.order.push_back(result.task_id.clone());
        self.results.insert(result.task_id.clone(), result);
        let mut forgotten = Vec::new();
        while self.order.len() > MOST
            && let Some(id) = self.order.pop_front()
        {
            self.bytes -= self.results.remove(&id).map_or(0, |result| result.bytes);
            self.bare = self.bare.saturating_sub(1);
            forgotten.push(id);
        }
        while self.bytes > MOST_BYTES
            && let Some(id) = self.order.get(self.bare)
        {
            self.bare += 1;
            if let Some(result) = self.results.get_mut(id) {
                let bare = result.without_output();
                self.bytes = self.bytes + bare.bytes - result.bytes;
                *result = Arc::new(bare);
            }
        }
        forgotten
    }

    pub(super) fn get(&self, task_id: &str) -> Option<&Arc<StoredResult>> {
        self.results.get(task_id)
    }

    /// The oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<StoredResult>> {
        self.order.iter().filter_map(|id| self.results.get(id))
    }
}
