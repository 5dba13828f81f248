//! History of an execution: the records of its conversation as it stands, and the places in it that forks and rewinds
//! go on from.

use std::collections::BTreeSet;

use super::{
    account::AccountChange,
    forks::{ForkRecord, TurnPlace},
    state::{Record, RelayedTurn},
};
use crate::gateway::ConversationPlace;

/// Records of a conversation that is still there, without those that belong to an execution of its own.
pub(crate) fn history(records: Vec<Record>) -> Vec<Record> {
    let (mut history, mut asked) = (Vec::new(), None);
    for record in records {
        match record {
            Record::ContextRead { .. }
            | Record::Prompted { .. }
            | Record::Answered { .. }
            | Record::Compacted { .. }
            | Record::Called { .. }
            | Record::ModelAsked { .. }
            | Record::ModelAnswered { .. }
            | Record::ModelFailed { .. }
            | Record::ProgramCalls { .. }
            | Record::ProgramEnded { .. }
            | Record::IterationFailed { .. }
            | Record::Stopped { .. }
            | Record::Account { change: AccountChange::Messaged(_), .. } => history.push(record),
            Record::Fork { about, .. } => match *about {
                ForkRecord::RewindAsked { to, .. } => asked = Some((to, history.len())),
                ForkRecord::Rewound { .. } => {
                    let Some((to, from)) = asked.take() else { continue };
                    let since = history.split_off(from.min(history.len())).into_iter();
                    history.truncate(cut(&history, to).unwrap_or(history.len()));
                    history.extend(since.filter(is_message));
                }
                ForkRecord::Inherited(_)
                | ForkRecord::RewindFailed { .. }
                | ForkRecord::Checkpointed { .. } => {}
            },
            Record::Begun(_)
            | Record::Opened { .. }
            | Record::Placed { .. }
            | Record::ModelReplayed { .. }
            | Record::Acp { .. }
            | Record::Judging { .. }
            | Record::Standstill { .. }
            | Record::After { .. }
            | Record::Ended { .. }
            | Record::Cancelled { .. }
            | Record::Account { .. }
            | Record::Closed { .. } => {}
        }
    }
    history
}

/// Conversation of a program as it was at a checkpoint, without its requests that had no end by then: it repeats them.
/// With the place of the request that waited; `None` where there is no such checkpoint.
pub(crate) fn program_history(
    mut records: Vec<Record>,
    to: TurnPlace,
) -> Option<(Vec<Record>, Option<ConversationPlace>)> {
    let made = |record: &Record| match record {
        Record::Fork { about, .. } => match &**about {
            ForkRecord::Checkpointed { place, kept: Some(_), conversation, .. } if *place == to => {
                Some(conversation.clone())
            }
            _ => None,
        },
        _ => None,
    };
    let (at, conversation) =
        records.iter().enumerate().rev().find_map(|(at, record)| Some((at, made(record)?)))?;
    records.truncate(at);
    let (mut history, mut ended) = (history(records), BTreeSet::new());
    // A program may have ended, behind its snapshot, before the record of that.
    let over = |record: &Record| {
        matches!(record, Record::ProgramEnded { iteration, .. }
            | Record::IterationFailed { iteration, .. } if *iteration == to.iteration)
    };
    history.truncate(history.iter().position(over).unwrap_or(history.len()));
    history.reverse();
    history.retain(|record| match record {
        Record::ModelAsked { request, .. } => ended.remove(request),
        Record::ModelAnswered { turn: RelayedTurn { request, .. }, .. }
        | Record::ModelFailed { request, .. } => {
            ended.insert(request.clone());
            true
        }
        _ => true,
    });
    history.reverse();
    Some((history, conversation))
}

pub(crate) fn is_message(record: &Record) -> bool {
    matches!(record, Record::Account { change: AccountChange::Messaged(_), .. })
}

/// Number of records up to a place; `None` where the turn is not there, or a call of it has no result.
pub(crate) fn cut(history: &[Record], to: TurnPlace) -> Option<usize> {
    let Some(last) = to.turns.checked_sub(1) else {
        let begins = |record: &Record| matches!(record, Record::Prompted { iteration, .. } if *iteration == to.iteration);
        return history.iter().position(begins).map(|at| at + 1);
    };
    let asked = |(at, record): (usize, &Record)| match record {
        Record::Answered { iteration, turn, answer, .. }
            if (*iteration, *turn) == (to.iteration, last) =>
        {
            Some((at, answer.calls.len()))
        }
        _ => None,
    };
    let (answered, calls) = history.iter().enumerate().find_map(asked)?;
    let of_it = |record: &Record| {
        matches!(record, Record::Called { key: (iteration, turn, _), .. }
            if (*iteration, *turn) == (to.iteration, last))
    };
    let called = history.iter().enumerate().filter(|(_, record)| of_it(record)).map(|(at, _)| at);
    let called: Vec<_> = called.collect();
    (called.len() == calls).then(|| called.last().copied().unwrap_or(answered) + 1)
}

/// The last place that a fork can begin at; `None` before the first prompt.
pub(crate) fn last_place(history: &[Record]) -> Option<TurnPlace> {
    let place = |record: &Record| match record {
        Record::Prompted { iteration, .. } => Some(TurnPlace { iteration: *iteration, turns: 0 }),
        Record::Answered { iteration, turn, .. } => {
            Some(TurnPlace { iteration: *iteration, turns: turn + 1 })
        }
        _ => None,
    };
    let mut places = history.iter().rev().filter_map(place);
    places.find(|place| cut(history, *place).is_some())
}
