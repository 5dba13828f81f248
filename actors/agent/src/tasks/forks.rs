//! The tools that have an execution thought again from an earlier turn: several times side by side, or itself.

mod shared;

use std::sync::Arc;

use hivekeep_kernel::{CallCx, ExecutionId, Layer, ToolError, tools};
use hivekeep_manifest::agent::AgentBudget;
use hivekeep_ports::OwnedSnapshot;
use hivekeep_runtime::log::Decision;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(super) use self::shared::not_a_program;
use self::shared::{SharedTurns, said};
use super::{Answer, best::BestOf};
use crate::{
    codes,
    execution::{
        forks::{ForkOrigin, ForkRecord, RewoundMachine, TurnPlace},
        history::{history, is_message},
        state::{ExecutionBegun, ExecutionState, KeptCheckpoint, Record},
    },
    tools::AgentService,
};

/// Most forks of one call.
const MOST_FORKS: usize = 16;

/// Place in an execution, with its iterations and turns counted from 1. The turns of a program are its requests to its
/// model, each once.
#[derive(Debug, Default, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForkPlace {
    /// Iteration. Default: the last one.
    #[schemars(range(min = 1))]
    iteration: Option<usize>,
    /// Turns of it that stay, with the results of their calls; 0 for its prompt alone, which is the default where an
    /// iteration is given.
    turn: Option<usize>,
}

/// Difference of a fork from its source.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForkVariation {
    /// Message that is read before the next turn; a program's model reads it with the program's next request.
    #[schemars(length(min = 1, max = 65_536))]
    instruction: Option<String>,
    /// Model in place of the source's.
    model: Option<String>,
}

/// Begin executions that share the turns of another one up to a place, and go on by themselves from there, each with a
/// budget of its own. A machine begins as its checkpoint of that turn.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentFork {
    /// Id of the execution, which may be over.
    execution_id: String,
    /// Turns that the forks share. Default: up to the last whole turn; of a program, up to its last checkpoint.
    #[serde(default)]
    at: ForkPlace,
    /// Number of forks, 1 to 16. Default: one for each variation, or one.
    #[schemars(range(min = 1, max = MOST_FORKS))]
    count: Option<usize>,
    /// Differences of the first forks; others go on as their source would.
    #[serde(default)]
    #[schemars(length(max = MOST_FORKS))]
    variations: Vec<ForkVariation>,
    /// Have the output of each fork judged by the same agents. agent_compare names the best.
    best_of: Option<BestOf>,
}

/// Forks that were begun.
#[derive(Debug, Serialize, JsonSchema)]
struct ForksBegun {
    /// Execution that they begin with.
    forked_from: ExecutionId,
    /// Place that they go on from.
    at: ForkPlace,
    /// Ids of the forks, in the order of the variations.
    execution_ids: Vec<ExecutionId>,
    /// Whether each has a machine that begins as that of the source.
    machine: bool,
}

/// Have an execution that is not over go on from an earlier turn. Later turns are dropped; what their calls did is not
/// undone, except in a machine whose checkpoint of that turn is kept.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentRewind {
    /// Id of the execution.
    execution_id: String,
    /// Turns that stay.
    to: ForkPlace,
    /// Message that is read before the next turn.
    #[schemars(length(min = 1, max = 65_536))]
    instruction: Option<String>,
}

/// Execution that goes on from an earlier turn.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentRewound {
    /// Id of the execution.
    execution_id: ExecutionId,
    /// Place that it goes on from.
    at: ForkPlace,
    /// Its machine: `restored`, `unchanged` (the effects of the dropped turns are still there) or `none`.
    machine: RewoundMachine,
}

tools! { pub(crate) FORK_FAMILY: "agents" for service AgentService, singleton agents;
    agent_fork: AgentFork => ForksBegun = AgentService::fork {
        name: "agent_fork", title: "Fork an execution", told_by: Some("aegis.task.list"),
        open_world: true, timeout_secs: 300,
    };
    agent_rewind: AgentRewind => AgentRewound = AgentService::rewind {
        name: "agent_rewind", title: "Rewind an execution", told_by: Some("aegis.task.logs"),
        timeout_secs: 300,
    };
}

impl AgentService {
    async fn fork(self: Arc<Self>, cx: CallCx, input: AgentFork) -> Answer<ForksBegun> {
        let AgentFork { execution_id, at, count, variations, best_of } = input;
        let (mut whole, records) = self.earlier(&cx, &execution_id).await?;
        let count = count.unwrap_or(variations.len().max(1));
        if variations.len() > count {
            let why = format!("{} variations are given for {count} forks", variations.len());
            return Err(ToolError::invalid(why).next("leave `count` out, or raise it"));
        }
        let shared = SharedTurns::of(at, &whole, records)?;
        if let Some(best_of) = best_of {
            let plan = &mut Arc::make_mut(&mut whole.begun).plan;
            best_of.judge(plan)?;
            self.plan_judges(&cx, plan).await?;
        }
        let (source, place) = (whole.begun.id, shared.place);
        // A refusal of every fork is told before anything is made.
        let varied = |nth: usize| variations.get(nth).cloned().unwrap_or_default();
        let mut begun = Vec::new();
        for nth in 0..count {
            begun.push(self.forked(&cx, &whole, &shared, varied(nth)).await?);
        }
        let machine = cx.guard(self.machine_at(&whole, place)).await?;
        let mut execution_ids = Vec::new();
        for (first, origin, said) in begun {
            let id = first.id;
            let inherited =
                ForkRecord::Inherited(ForkOrigin { machine: machine.clone(), ..origin });
            let more = shared.copies.iter().cloned().chain([Record::fork(inherited)]).chain(said);
            match self.begin(first, more.collect()).await {
                Ok(()) => execution_ids.push(id),
                Err(error) if execution_ids.is_empty() => return Err(error),
                Err(error) => {
                    let message = format!(
                        "{} of {count} forks were begun: {}",
                        execution_ids.len(),
                        error.message
                    );
                    return Err(ToolError { message, retryable: false, ..error }
                        .next("those in `details.execution_ids` go on; aegis.task.cancel ends one")
                        .detail("execution_ids", json!(execution_ids)));
                }
            }
        }
        let machine = machine.is_some();
        Ok(ForksBegun { forked_from: source, at: ForkPlace::of(place), execution_ids, machine })
    }

    async fn rewind(self: Arc<Self>, cx: CallCx, input: AgentRewind) -> Answer<AgentRewound> {
        let AgentRewind { execution_id, to, instruction } = input;
        let (before, records) = self.earlier(&cx, &execution_id).await?;
        not_a_program(&before)?;
        let history = history(records);
        let (place, records) = to.find(&history)?;
        let messages = history[..records].iter().filter(|record| is_message(record)).count();
        let (caller, rewinds) = (self.run_caller(&cx), before.forks.rewinds);
        let by = cx.caller.unwrap_or(caller.user);
        let said = instruction.map(|text| said(text, by)).transpose()?;
        let decide = move |state: &ExecutionState| {
            if state.forks.rewinding().is_some() || state.forks.rewinds != rewinds {
                let message = "another rewind of it is under way";
                return Err(ToolError::new(Layer::Actor, hivekeep_kernel::codes::BUSY, message)
                    .next("look at its turns, and repeat the call; nothing was written")
                    .retryable());
            }
            let asked = ForkRecord::RewindAsked { to: place, messages, by };
            Ok(said.into_iter().fold(Decision::record(Record::fork(asked)), Decision::and))
        };
        let told = self.runs.tell(caller, &execution_id, decide).await;
        told.map_err(|error| match error.is(hivekeep_kernel::codes::RUN_OVER) {
            true => error.next("agent_fork goes on from its turns in another execution"),
            false => error,
        })?;
        let done = |state: &ExecutionState| state.forks.rewinding().is_none();
        let ended = cx.guard(self.runs.until(caller, &execution_id, done)).await?.state;
        match ended.forks.rewound.clone().filter(|_| done(&ended)) {
            Some(Ok(machine)) => {
                Ok(AgentRewound { execution_id: ended.begun.id, at: ForkPlace::of(place), machine })
            }
            Some(Err(error)) => Err(*error),
            None => {
                let message = "the execution ended before it was rewound";
                Err(ToolError::new(Layer::Actor, hivekeep_kernel::codes::RUN_OVER, message)
                    .next("agent_fork goes on from its turns in another execution"))
            }
        }
    }

    /// An execution that the caller may fork and rewind, with its records.
    async fn earlier(&self, cx: &CallCx, id: &str) -> Answer<(ExecutionState, Vec<Record>)> {
        let caller = self.run_caller(cx);
        self.may_continue(cx, self.runs.get(caller, id)?.state.begun.id)?;
        let records = self.runs.records(caller, id).await?;
        let mut state = ExecutionState::of(&records)?;
        if let Some(Record::Begun(begun)) = records.first() {
            // Material that it read since is among what is copied.
            state.begun = Arc::new((**begun).clone());
        }
        Ok((state, records))
    }

    /// First record of a fork, how it begins, and what is said to it.
    async fn forked(
        &self,
        cx: &CallCx,
        whole: &ExecutionState,
        shared: &SharedTurns,
        ForkVariation { instruction, model }: ForkVariation,
    ) -> Answer<(ExecutionBegun, ForkOrigin, Option<Record>)> {
        let mut plan = whole.begun.plan.clone();
        (plan.model, plan.scheduled_for) = (model.unwrap_or(plan.model), None);
        // The session may be another one than that which began the source.
        self.complete(cx, &mut plan).await?;
        for judge in plan.judges.values_mut() {
            self.complete(cx, &mut judge.plan).await?;
        }
        let first = self.first_record(cx, ExecutionId::new(), plan, &AgentBudget::default())?;
        let by = cx.caller.unwrap_or(first.user);
        let (origin, said) = shared.told(whole.begun.id, instruction, by)?;
        let begins = std::iter::once(Record::Begun(Box::new(first.clone())));
        let all = begins.chain(shared.copies.iter().cloned());
        let all =
            all.chain([Record::fork(ForkRecord::Inherited(origin.clone()))]).chain(said.clone());
        let state = ExecutionState::of(&all.collect::<Vec<_>>())?;
        let rests = state.begun.plan.chat.is_some();
        match state.conclusion().filter(|_| !rests) {
            None => Ok((first, origin, said)),
            Some(_) => {
                let message = "nothing follows that turn: the execution would end with it";
                Err(ToolError::invalid(message)
                    .next("give each variation an `instruction`, or name an earlier turn"))
            }
        }
    }

    /// Snapshot of an execution's machine behind a turn, made now where the machine still is as it was then; none where
    /// there was no machine.
    async fn machine_at(
        &self,
        state: &ExecutionState,
        place: TurnPlace,
    ) -> Answer<Option<OwnedSnapshot>> {
        let missing = |why: &str, next: &'static str| {
            let (iteration, turn) = (place.iteration + 1, place.turns);
            let message = format!("the machine behind turn {turn} of iteration {iteration} {why}");
            Err(ToolError::new(Layer::Actor, codes::CHECKPOINT_MISSING, message).next(next))
        };
        let found = self.machines.own(state);
        let rests = state.end.is_some() || state.due().is_empty();
        match (state.forks.checkpoint(place), found) {
            (Some(KeptCheckpoint::NoMachine), _) => Ok(None),
            (Some(KeptCheckpoint::Kept(kept)), Some(_)) => Ok(Some(kept.clone())),
            (_, Some(machine)) if rests && state.place() == place => {
                let name = state.snapshot_name(place);
                match self.machines.save(state, &machine, name).await {
                    Ok(kept) => Ok(Some(kept)),
                    // The machine is being stopped.
                    Err(error) if error.retryable => Err(error),
                    Err(error) => missing(
                        &format!("cannot be kept: {}: {}", error.code, error.message),
                        "have the agent work in a virtual machine (`isolation: microvm`)",
                    ),
                }
            }
            (_, Some(_)) => missing(
                "is not kept",
                "fork from the last turn once it rests, or set `execution.checkpoint: turn` in the manifest",
            ),
            (Some(KeptCheckpoint::Kept(_)), None) => missing("is gone", "run the agent again"),
            (_, None) if state.workspace.is_some() => missing("is gone", "run the agent again"),
            (_, None) => Ok(None),
        }
    }
}
