//! Turns that forks share with their source, and the place behind them.

use hivekeep_kernel::{ExecutionId, Layer, ToolError, User};

use super::{Answer, ForkPlace};
use crate::{
    codes,
    execution::{
        account::{AccountChange, ExecutionMessage},
        forks::{ForkOrigin, ForkedProgram, TurnPlace},
        history::{cut, history, last_place, program_history},
        program::program_task,
        state::{ExecutionState, KeptCheckpoint, Record},
    },
    gateway::{ConversationPlace, ConversationWords},
};

impl ForkPlace {
    /// Place in a history, and the number of records up to it.
    pub(super) fn find(self, history: &[Record]) -> Answer<(TurnPlace, usize)> {
        let unknown = |what: String| ToolError::new(Layer::Actor, codes::TURN_UNKNOWN, what);
        let last = last_place(history);
        let last = last.ok_or_else(|| unknown("nothing was asked yet".to_owned()))?;
        let iteration = match self.iteration {
            Some(iteration) => iteration.saturating_sub(1),
            None => last.iteration,
        };
        let turns = match (self.turn, self.iteration) {
            (Some(turns), _) => turns,
            (None, Some(_)) => 0,
            (None, None) => last.turns,
        };
        let place = TurnPlace { iteration, turns };
        let records = cut(history, place).ok_or_else(|| {
            let what = format!("there is no whole turn {turns} of iteration {}", iteration + 1);
            unknown(what)
                .next("aegis.task.logs shows the turns; leave the place out for the last whole one")
                .detail("last", last.shown())
        })?;
        Ok((place, records))
    }

    pub(super) fn of(place: TurnPlace) -> Self {
        Self { iteration: Some(place.iteration + 1), turn: Some(place.turns) }
    }
}

/// Turns that forks share.
pub(super) struct SharedTurns {
    pub(super) place: TurnPlace,
    pub(super) copies: Vec<Record>,
    /// Program that waits for an answer behind them, and where its conversation stands.
    program: Option<(ForkedProgram, Option<ConversationPlace>)>,
}

impl SharedTurns {
    pub(super) fn of(at: ForkPlace, state: &ExecutionState, records: Vec<Record>) -> Answer<Self> {
        if state.begun.plan.program.is_some() {
            return Self::of_program(at, state, records);
        }
        let mut copies = history(records);
        let (place, records) = at.find(&copies)?;
        copies.truncate(records);
        Ok(Self { place, copies, program: None })
    }

    fn of_program(at: ForkPlace, state: &ExecutionState, records: Vec<Record>) -> Answer<Self> {
        if state.begun.plan.program.as_ref().is_some_and(|program| program.acp) {
            let message = "a fork's machine has no process whose input and output the daemon holds, as those of the Agent Client Protocol are";
            return Err(ToolError::new(Layer::Actor, codes::FORK_UNSUPPORTED, message)
                .next("use a program with `protocol: exit`, or run the agent again"));
        }
        let last = state.forks.last_kept();
        let place = match (at.iteration, at.turn, last) {
            (None, None, Some(last)) => last,
            (iteration, turns, _) => {
                let iteration = iteration.map_or(state.next_turn().0, |at| at.saturating_sub(1));
                TurnPlace { iteration, turns: turns.unwrap_or(0) }
            }
        };
        let (iteration, turns) = (place.iteration, place.turns);
        let kept = matches!(state.forks.checkpoint(place), Some(KeptCheckpoint::Kept(_)));
        let found = kept.then(|| program_history(records, place)).flatten();
        let (copies, conversation) = found.ok_or_else(|| {
            let which = format!("{turns} requests of iteration {}", iteration + 1);
            let message = format!("the machine of the program is not kept behind {which}");
            ToolError::new(Layer::Actor, codes::CHECKPOINT_MISSING, message)
                .next("`checkpoint_made` of aegis.task.logs tells of those that are; `execution.checkpoint: turn` has them made")
                .detail("last", last.map(TurnPlace::shown))
        })?;
        let origin = state.forks.origin.as_ref().filter(|it| it.place.iteration == iteration);
        let program = origin.and_then(|origin| origin.program.clone()).unwrap_or_else(|| {
            let (id, plan) = (state.begun.id, state.begun.plan.program.as_ref());
            ForkedProgram {
                message_id: id.to_string(),
                task_id: program_task(id, iteration),
                model: plan.map(|program| program.model.clone()).unwrap_or_default(),
                words: Vec::new(),
            }
        });
        Ok(Self { place, copies, program: Some((program, conversation)) })
    }

    /// Beginning of a fork that is told something, and the message of one that is no program's.
    pub(super) fn told(
        &self,
        source: ExecutionId,
        text: Option<String>,
        by: User,
    ) -> Answer<(ForkOrigin, Option<Record>)> {
        let origin = ForkOrigin { source, place: self.place, machine: None, program: None };
        let said = text.clone().map(|text| said(text, by)).transpose()?;
        let Some((mut program, conversation)) = self.program.clone() else {
            return Ok((origin, said));
        };
        if let Some(text) = text {
            let at = conversation.ok_or_else(|| {
                let message = "the program's request has no conversation that an instruction could be put into";
                ToolError::new(Layer::Actor, codes::FORK_UNSUPPORTED, message)
                    .next("fork from another checkpoint, or without an `instruction`")
            })?;
            program.words.push(ConversationWords { at, text });
        }
        Ok((ForkOrigin { program: Some(program), ..origin }, None))
    }
}

/// Refuses an execution whose turns are a program's, where it is to go on from an earlier one by itself.
pub(in crate::tasks) fn not_a_program(state: &ExecutionState) -> Answer<()> {
    let plan = &state.begun.plan;
    let Some(program) = &plan.program else { return Ok(()) };
    let message =
        format!("{} is the program `{}`, whose turns are its own", plan.agent, program.name);
    Err(ToolError::new(Layer::Actor, codes::FORK_UNSUPPORTED, message)
        .next("agent_fork goes on from a checkpoint of its machine; or run the agent again"))
}

pub(super) fn said(text: String, by: User) -> Answer<Record> {
    if text.trim().is_empty() {
        return Err(ToolError::invalid("the instruction is blank").next("say something"));
    }
    Ok(Record::account(AccountChange::Messaged(ExecutionMessage { text, by })))
}
