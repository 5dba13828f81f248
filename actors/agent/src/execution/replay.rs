//! Replay of an execution: its plan carried out again over the recorded answers and results, up to the first request
//! that is another one now. Nothing is called.

use std::sync::Arc;

use hivekeep_kernel::ToolError;
use hivekeep_ports::ChildTool;
use hivekeep_runtime::log::Sourced as _;
use tokio::time::Instant;

use super::{
    digest::RequestDigest,
    forks::ForkRecord,
    plan::ExecutionPlan,
    state::{ExecutionState, Record},
    turn::request,
};

/// Bytes of a text that is shown.
const SHOWN: usize = 400;

/// A request that is another one now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestDifference {
    /// Iteration and turn, each from 0.
    pub(crate) turn: (usize, usize),
    /// `prompt`, `conversation`, `tools` or `parameters`.
    pub(crate) what: &'static str,
    /// The prompt from where it differs, as it was and as it is.
    pub(crate) texts: Option<(String, String)>,
}

/// Outcome of a replay.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplayOutcome {
    /// Requests that are the same.
    pub(crate) same: usize,
    /// Requests without hashes, which were recorded by an older daemon.
    pub(crate) unknown: usize,
    pub(crate) difference: Option<RequestDifference>,
}

/// Carries a plan, by default that of the first record, out over records, with the tools that its session would be
/// offered.
///
/// # Errors
/// `internal` for records that are no execution's.
pub(crate) fn replay(
    records: &[Record],
    plan: Option<ExecutionPlan>,
    tools: &[ChildTool],
) -> Result<ReplayOutcome, ToolError> {
    let mut state = ExecutionState::of(records.get(..1).unwrap_or_default())?;
    if let Some(plan) = plan {
        Arc::make_mut(&mut state.begun).plan = plan;
    }
    let inherits = |record: &Record| matches!(record, Record::Fork { about, .. } if matches!(**about, ForkRecord::Inherited(_)));
    // Requests of the source of a fork are a matter of the source.
    let own = records.iter().position(inherits).unwrap_or(0);
    let mut replay = ReplayOutcome::default();
    for (at, record) in records.iter().enumerate().skip(1) {
        match record {
            Record::Prompted { iteration, text, .. } if at > own => {
                let now = state.next_prompt().unwrap_or_else(|error| error.to_text());
                if now != *text {
                    let (turn, texts) = ((*iteration, 0), Some(from_difference(text, &now)));
                    let what = "prompt";
                    replay.difference = Some(RequestDifference { turn, what, texts });
                    return Ok(replay);
                }
            }
            Record::Answered { iteration, turn, answer, .. } if at > own => {
                let mut asked = state.clone();
                // Others came while it was answered.
                let account = Arc::make_mut(&mut asked.account);
                account.messages.truncate(answer.messages_read);
                let now = RequestDigest::of(&request(&asked, tools, Instant::now()));
                match answer.request.as_ref().map(|was| was.difference(&now)) {
                    None => replay.unknown += 1,
                    Some(None) => replay.same += 1,
                    Some(Some(what)) => {
                        let turn = (*iteration, *turn);
                        replay.difference = Some(RequestDifference { turn, what, texts: None });
                        return Ok(replay);
                    }
                }
            }
            // Material that the plan does not name.
            Record::ContextRead { .. } if state.context_to_read().is_none() => continue,
            _ => {}
        }
        let broken = |_| ToolError::internal(format!("record {at} does not follow"));
        state.apply(record.clone()).map_err(broken)?;
    }
    Ok(replay)
}

/// Two texts from the line in which they differ, as far as they are shown.
fn from_difference(was: &str, now: &str) -> (String, String) {
    let same = was.lines().zip(now.lines()).take_while(|(was, now)| was == now).count();
    let rest = |text: &str| {
        let rest = text.lines().skip(same).collect::<Vec<_>>().join("\n");
        rest[..rest.floor_char_boundary(SHOWN)].to_owned()
    };
    (rest(was), rest(now))
}
