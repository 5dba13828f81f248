//! The tool that sets executions side by side, forks of one above all.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, ExecutionId, ToolError, tools};
use hivekeep_ports::WorkspaceForks;
use hivekeep_runtime::{runs::RunState, saga::SagaView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Answer,
    best::{best, ranking},
    trees::FilesCompared,
    types::TaskState,
    worked,
};
use crate::{
    execution::{
        account::BudgetKind,
        relatives::DAEMON,
        state::{ExecutionState, Turn},
    },
    tools::AgentService,
};

/// Executions of one comparison.
const LEAST: usize = 2;
const MOST: usize = 16;
/// Characters of a text.
const CHARS: usize = 500;

/// Set executions side by side: what came of each, what it took, and the first turn in which those of one origin differ.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentCompare {
    /// Ids of the executions, 2 to 16.
    #[schemars(length(min = LEAST, max = MOST))]
    execution_ids: Vec<String>,
    /// Compare the files of their machines, too. Those that are stopped are started for that, and stopped again.
    #[serde(default)]
    files: bool,
}

/// Executions side by side.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentsCompared {
    /// In the order of the ids.
    executions: Vec<ComparedExecution>,
    /// First turn in which they differ; null where they have no common origin, are programs, or do not differ.
    first_difference: Option<TurnDifference>,
    /// Fork with the highest score of the judges of `best_of`. Null while one of those forks goes on, where they were
    /// not judged alike, or where none completed.
    best: Option<ExecutionId>,
    /// Files that differ, where they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<FilesCompared>,
}

/// An execution beside others.
#[derive(Debug, Serialize, JsonSchema)]
struct ComparedExecution {
    /// Id of the execution.
    execution_id: ExecutionId,
    /// Name and version of the agent.
    agent: String,
    /// Model that was asked for.
    model: String,
    /// `pending`, `running`, `completed`, `failed` or `cancelled`.
    status: &'static str,
    /// Beginning of its result, or of the last text of the model.
    last_output: Option<String>,
    /// Error that it failed with, or the last iteration.
    last_error: Option<String>,
    /// Execution that it is a fork of.
    forked_from: Option<ExecutionId>,
    /// Iterations that were begun, those that it shares with its source among them.
    iterations: usize,
    /// The same of its turns.
    turns: usize,
    /// The same of its calls.
    calls: usize,
    /// Tokens of its own.
    tokens: u64,
    /// Cost of its own and of executions that it began, in millionths of a US dollar.
    cost_micro_usd: u64,
    /// Seconds of work of its own.
    wall_secs: u64,
    /// Verdicts of its validators, in order.
    scores: Vec<VerdictScore>,
    /// Score by the judges of `best_of`, once it completed.
    score: Option<f64>,
    /// Why its files are not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    files_error: Option<String>,
}

/// Verdict of a validator.
#[derive(Debug, Serialize, JsonSchema)]
struct VerdictScore {
    /// Iteration, from 1.
    iteration: usize,
    /// Place of the validator among those of its kind, from 1.
    validator: usize,
    /// Score from 0 to 1.
    score: f64,
    /// Whether it passed.
    passed: bool,
}

/// Turn in which executions differ.
#[derive(Debug, Serialize, JsonSchema)]
struct TurnDifference {
    /// Iteration, from 1.
    iteration: usize,
    /// Turn, from 1.
    turn: usize,
    /// Answer of each, in the order of the ids; null for one that has no such turn.
    answers: Vec<Option<String>>,
}

tools! { pub(crate) COMPARE_FAMILY: "agents" for service AgentService, singleton agents;
    agent_compare: AgentCompare => AgentsCompared = AgentService::compare {
        name: "agent_compare", title: "Compare executions", effect: Read,
        timeout_secs: 300, rate_of: |input| input["files"].as_bool()?.then_some(RateClass::Create),
    };
}

impl AgentService {
    async fn compare(self: Arc<Self>, cx: CallCx, input: AgentCompare) -> Answer<AgentsCompared> {
        let ids = input.execution_ids;
        if !(LEAST..=MOST).contains(&ids.len()) {
            let why = format!("{} executions are named", ids.len());
            return Err(ToolError::invalid(why).next(format!("name {LEAST} to {MOST}")));
        }
        let caller = self.run_caller(&cx);
        let mut states = Vec::new();
        for id in &ids {
            if input.files {
                // Its machine is stopped behind its end.
                cx.guard(self.runs.settled(caller, id)).await?;
            }
            // Nothing of its turns is in memory once it is over.
            states.push(ExecutionState::of(&self.runs.records(caller, id).await?)?);
        }
        let mut origins = states.iter().map(|state| self.origin(state));
        let first = origins.next();
        // A program's turns are not kept as texts.
        let shared = states[0].begun.plan.program.is_none();
        let shared = shared && origins.all(|origin| Some(origin) == first);
        let executions = ids.iter().zip(&states).map(|(id, state)| {
            let view = self.runs.get(caller, id)?;
            Ok(compared(state, self.state(&SagaView { state: state.clone(), ..view })))
        });
        let mut executions = executions.collect::<Answer<Vec<_>>>()?;
        let mut files = None;
        if input.files {
            let forks = self.ports.need::<dyn WorkspaceForks>()?;
            // To its end: each call in it ends with this one, and machines are put back behind that.
            let (compared, errors) = self.machines.compare(&cx, &*forks, &states).await;
            for (row, error) in executions.iter_mut().zip(errors) {
                row.files_error = error;
            }
            files = Some(compared);
        }
        Ok(AgentsCompared {
            executions,
            best: best(&states),
            files,
            first_difference: if shared { first_difference(&states) } else { None },
        })
    }

    /// Execution at which a chain of forks begins, as far as it is kept.
    fn origin(&self, state: &ExecutionState) -> ExecutionId {
        let (mut id, mut from) = (state.begun.id, state.forks.origin.clone());
        while let Some(origin) = from {
            id = origin.source;
            let view = self.runs.get(DAEMON, &id.to_string());
            from = view.ok().and_then(|view| view.state.forks.origin.clone());
        }
        id
    }
}

fn compared(state: &ExecutionState, shown: TaskState) -> ComparedExecution {
    let plan = &state.begun.plan;
    let turns = || state.iterations.iter().flat_map(|iteration| &iteration.turns);
    let scores = state.judging.verdicts().iter().map(|(key, verdict)| VerdictScore {
        iteration: key.turn().0 + 1,
        validator: key.validator + 1,
        score: verdict.score,
        passed: verdict.passed,
    });
    ComparedExecution {
        execution_id: state.begun.id,
        agent: format!("{} {}", plan.agent, plan.version),
        model: plan.model.clone(),
        status: shown.status,
        last_output: shown.last_output.map(|text| short(&text)),
        last_error: shown.last_error.map(|text| short(&text)),
        forked_from: shown.forked_from,
        iterations: state.iterations.len(),
        turns: turns().count(),
        calls: turns().map(|turn| turn.results.iter().flatten().count()).sum(),
        tokens: state.tokens,
        cost_micro_usd: state.account.total().amount(BudgetKind::MicroUsd),
        wall_secs: worked(state, state.ended_at().unwrap_or(state.last_at)),
        scores: scores.collect(),
        score: ranking(state).map(|verdict| verdict.score),
        files_error: None,
    }
}

fn first_difference(states: &[ExecutionState]) -> Option<TurnDifference> {
    let turn = |state: &ExecutionState, iteration: usize, turn: usize| {
        Some(said(state.iterations.get(iteration)?.turns.get(turn)?))
    };
    let count = |iteration: usize| {
        let of =
            |state: &ExecutionState| state.iterations.get(iteration).map_or(0, |it| it.turns.len());
        states.iter().map(of).max().unwrap_or(0)
    };
    let iterations = states.iter().map(|state| state.iterations.len()).max().unwrap_or(0);
    let places = (0..iterations).flat_map(|at| (0..count(at)).map(move |turn| (at, turn)));
    for (iteration, at) in places {
        let answers: Vec<_> = states.iter().map(|state| turn(state, iteration, at)).collect();
        if answers.iter().any(|answer| *answer != answers[0]) {
            let answers = answers.into_iter().map(|answer| answer.map(|text| short(&text)));
            let (iteration, turn) = (iteration + 1, at + 1);
            return Some(TurnDifference { iteration, turn, answers: answers.collect() });
        }
    }
    None
}

/// Text of a turn, with its calls.
fn said(turn: &Turn) -> String {
    let calls = turn.answer.calls.iter().map(|call| format!("{}({})", call.name, call.arguments));
    let text = Some(turn.answer.text.clone()).filter(|text| !text.is_empty());
    text.into_iter().chain(calls).collect::<Vec<_>>().join("\n")
}

fn short(text: &str) -> String {
    match text.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
