//! Executions that others order, each begun once for its id.

use async_trait::async_trait;
use hivekeep_kernel::{AgentId, CallCx, ExecutionId, ToolError};
use hivekeep_manifest::{
    agent::{AgentBudget, AgentManifest},
    parse_agent,
};
use hivekeep_ports::{
    ExecutionOrder, ExecutionResult, Executions, OrderedAgent, OrderedProgram, OutputScore,
};
use hivekeep_runtime::runs::RunCaller;
use serde_json::json;

use crate::{
    execution::{
        judge::stands_still,
        plan::{ExecutionPlan, ExecutionRequest},
        relatives::DAEMON,
        state::ExecutionEnd,
    },
    tools::{AgentService, invalid},
};

type Answer<T> = Result<T, ToolError>;

/// Id of the agent whose executions are those of programs without a manifest.
const PROGRAM: &str = "agent_00000000000000000000000000000000";
/// Longest work of a program, which is that of a task.
const LONGEST: &str = "86400s";

#[async_trait]
impl Executions for AgentService {
    async fn begin(&self, cx: &CallCx, order: ExecutionOrder) -> Answer<()> {
        let (id, user) = (order.id.to_string(), self.caller(cx)?.user);
        match self.runs.get(DAEMON, &id) {
            Ok(_) => self.runs.get(RunCaller { user, operator: false }, &id).map(drop),
            Err(_) => self.begin_order(cx, order).await,
        }
    }

    async fn ended(&self, id: ExecutionId) -> Answer<ExecutionResult> {
        let view = self.runs.ended(DAEMON, &id.to_string()).await?;
        let score = view.state.ordered_score.as_deref();
        let judged = score.map(|score| OutputScore {
            score: score.score,
            confidence: score.confidence,
            scores: score.scores.clone(),
        });
        match view.state.end.as_deref() {
            Some(ExecutionEnd::Completed { output }) => {
                Ok(ExecutionResult::Completed { output: output.clone(), judged })
            }
            Some(ExecutionEnd::Failed { error }) => {
                Ok(ExecutionResult::Failed { error: (**error).clone(), judged })
            }
            Some(ExecutionEnd::Cancelled) => Ok(ExecutionResult::Cancelled),
            None => Err(stands_still(&view)),
        }
    }

    async fn cancel(&self, id: ExecutionId) -> Answer<bool> {
        self.runs.cancel(DAEMON, &id.to_string()).await
    }
}

impl AgentService {
    async fn begin_order(&self, cx: &CallCx, order: ExecutionOrder) -> Answer<()> {
        let ExecutionOrder { id, agent, intent, input, judges, max_iterations, limit } = order;
        let ((agent_id, manifest), program) = match agent {
            OrderedAgent::Deployed { name, version } => {
                (self.manifest(self.caller(cx)?, &name, version.as_deref()).await?, None)
            }
            OrderedAgent::Program(program) => {
                let agent: AgentId =
                    PROGRAM.parse().map_err(|error| ToolError::internal(format!("{error}")))?;
                ((agent, program_agent(&program)?), Some(program))
            }
        };
        let host = self.host(&manifest.spec);
        let request = ExecutionRequest { intent, input, host, ..ExecutionRequest::default() };
        let mut plan = ExecutionPlan::of(agent_id, manifest, request, &self.options)?;
        if let (Some(order), Some(program)) = (program, plan.program.take()) {
            (plan.program, plan.machine) = (Some(program.within(id, *order)?), None);
        }
        plan.validation.judge_by(judges);
        let limits = &mut plan.limits;
        if let Some(most) = max_iterations {
            limits.iterations = most.max(1);
        }
        if let Some(limit) = limit {
            let most_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            limits.whole_ms = limits.whole_ms.min(most_ms);
        }
        self.start_planned(id, cx, plan, &AgentBudget::default()).await.map(drop)
    }
}

/// Manifest of an agent that is a program and nothing else.
///
/// # Errors
/// `manifest_invalid`.
fn program_agent(order: &OrderedProgram) -> Result<AgentManifest, ToolError> {
    let manifest = json!({
        "apiVersion": "100monkeys.ai/v1",
        "kind": "Agent",
        "metadata": { "name": "program", "version": "1.0.0" },
        "spec": {
            "runtime": {
                "language": "shell",
                "version": "1",
                "program": order.program,
                "model": order.model.as_deref().unwrap_or("default"),
            },
            "task": { "instruction": "program", "prompt_template": "{{input}}" },
            "execution": { "iteration_timeout": LONGEST },
            "security": { "resources": { "timeout": LONGEST } },
        },
    });
    parse_agent(&manifest.to_string()).map_err(|problems| invalid(&problems))
}
