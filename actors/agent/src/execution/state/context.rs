//! State of the material that an execution reads before its first prompt.

use std::sync::Arc;

use super::ExecutionState;
use crate::execution::{plan::ContextSource, records::ContextText};

/// Most bytes of an item.
const ITEM_BYTES: usize = 64 * 1024;
/// Most bytes of all items.
const ALL_BYTES: usize = 256 * 1024;

/// Items that were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ContextProgress {
    read: usize,
    bytes: usize,
}

impl ExecutionState {
    /// Item that is to be read next, and the room for it.
    pub(in crate::execution) fn context_to_read(&self) -> Option<(usize, &ContextSource, usize)> {
        let ContextProgress { read, bytes } = self.context;
        let source = self.begun.plan.sources.get(read)?;
        Some((read, source, ITEM_BYTES.min(ALL_BYTES.saturating_sub(bytes))))
    }

    /// Puts the text of the next item where it belongs.
    pub(in crate::execution) fn took_context(
        &mut self,
        item: usize,
        read: &ContextText,
    ) -> Option<()> {
        let source = self.begun.plan.sources.get(item).filter(|_| item == self.context.read)?;
        let (at, plan) = (source.at, &mut Arc::make_mut(&mut self.begun).plan);
        plan.context.get_mut(at)?.push_str(&read.text);
        self.context.read += 1;
        self.context.bytes += read.text.len();
        Some(())
    }
}
