//! State of summaries that stand for older turns.

use std::sync::Arc;

use hivekeep_kernel::{Layer, ToolError};

use super::{CallEnd, ExecutionState, Turn, TurnAnswer, TurnStop};
use crate::{
    codes,
    execution::{
        forks::{TurnKey, TurnPlace},
        plan::CompactionPlan,
    },
};

/// Bytes of a result that make a token.
const TOKEN_BYTES: u64 = 3;

const SUMMARY: &str = "[The conversation was longer. A summary of what came before:]\n";

/// Summary of the turns before `from`, which was asked for before another turn.
#[derive(Debug, Clone, PartialEq)]
struct KeptSummary {
    before: TurnKey,
    from: TurnKey,
    text: Arc<str>,
}

/// Summaries of a conversation, as the records have them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CompactionState {
    /// Turn before which one was asked for last.
    asked_before: Option<TurnKey>,
    /// True if that one is of no use.
    failed: bool,
    summaries: Vec<KeptSummary>,
}

impl CompactionState {
    /// First turn that is shown as it is, and what stands before it, in a conversation from an iteration on.
    pub(in crate::execution) fn shown(&self, first: usize) -> Option<(TurnKey, String)> {
        let last = self.summaries.last().filter(|summary| summary.from.0 >= first)?;
        Some((last.from, format!("{SUMMARY}{}", last.text)))
    }

    /// Forgets summaries that were asked for behind a place.
    pub(in crate::execution) fn drop_behind(&mut self, place: TurnPlace) {
        self.summaries.retain(|summary| !place.is_before(summary.before));
        (self.asked_before, self.failed) = (None, false);
    }
}

impl ExecutionState {
    /// Iteration in which the conversation begins.
    pub(in crate::execution) fn first_shown(&self) -> usize {
        let last = self.iterations.len().saturating_sub(1);
        if self.begun.plan.chat.is_some() { 0 } else { last }
    }

    /// First turn that stays, if those before it are to be replaced now.
    pub(in crate::execution) fn compaction_due(&self) -> Option<TurnKey> {
        let CompactionPlan { tokens, keep_turns } = self.begun.plan.compaction?;
        if self.compaction.asked_before == Some(self.next_turn()) {
            return None;
        }
        let first = self.first_shown();
        let from = self.compaction.shown(first).map_or((first, 0), |(from, _)| from);
        let numbered = self.iterations.iter().enumerate().skip(from.0);
        let turns = numbered.flat_map(|(iteration, it)| {
            it.turns.iter().enumerate().map(move |(nth, turn)| ((iteration, nth), turn))
        });
        let turns: Vec<_> = turns.filter(|(place, _)| *place >= from).collect();
        let replaced = turns.len().checked_sub(keep_turns).filter(|replaced| *replaced > 0)?;
        (size(turns.last()?.1) > tokens).then_some(turns[replaced].0)
    }

    /// Follows a summary, asked for before a turn.
    pub(in crate::execution) fn compacted(
        &mut self,
        before: TurnKey,
        from: TurnKey,
        answer: &TurnAnswer,
    ) -> Option<()> {
        (before == self.next_turn() && from < before).then_some(())?;
        self.count(answer);
        let failed = answer.stop != TurnStop::Done || answer.text.trim().is_empty();
        if !failed {
            let text = answer.text.trim().into();
            self.compaction.summaries.push(KeptSummary { before, from, text });
        }
        (self.compaction.asked_before, self.compaction.failed) = (Some(before), failed);
        Some(())
    }

    /// Error of a summary that the next turn would need.
    pub(in crate::execution) fn compaction_failure(&self) -> Option<ToolError> {
        let CompactionState { asked_before, failed, .. } = &self.compaction;
        (*failed && *asked_before == Some(self.next_turn())).then(|| {
            let message = "the summary of the conversation is empty or was cut short";
            ToolError::new(Layer::Actor, codes::COMPACTION_FAILED, message)
                .next("raise `max_output_tokens` of the model, or `tokens` of `compaction`")
        })
    }
}

/// Tokens of the conversation behind a turn: those that its model counted, and an estimate of its results.
fn size(Turn { answer, results }: &Turn) -> u64 {
    let bytes = |result: &Option<Arc<CallEnd>>| {
        result.as_deref().map_or(0, |result| result.shown().0.len())
    };
    let results = results.iter().map(bytes).sum::<usize>() as u64;
    let counted = answer.input_tokens.saturating_add(answer.output_tokens);
    counted.saturating_add(results / TOKEN_BYTES)
}
