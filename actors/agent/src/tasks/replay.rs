//! The tool that carries an execution out again over what was recorded of it.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, ExecutionId, tools};
use hivekeep_ports::ChildSession;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, forks::not_a_program};
use crate::{
    execution::{
        plan::{ExecutionPlan, ExecutionRequest},
        replay::{ReplayOutcome, RequestDifference, replay},
        state::ExecutionState,
    },
    tools::AgentService,
};

/// Carry an execution out again over its recorded answers and results, and find the first request to the model that is
/// another one now. Nothing is asked and nothing is called.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentReplay {
    /// Id of the execution.
    execution_id: String,
    /// Version of its agent to carry out, as `1.2.3` or `latest`. Default: what was recorded when it was begun.
    version: Option<String>,
}

/// Outcome of a replay.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentReplayed {
    /// Id of the execution.
    execution_id: ExecutionId,
    /// Whether no request that could be compared is another one now.
    same: bool,
    /// Requests that were compared and are the same.
    requests: usize,
    /// Requests that an older daemon recorded without what is needed to compare them.
    unknown: usize,
    /// First request that is another one now.
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<ReplayDifference>,
}

/// A request that is another one now.
#[derive(Debug, Serialize, JsonSchema)]
struct ReplayDifference {
    /// Iteration, from 1.
    iteration: usize,
    /// Turn, from 1.
    turn: usize,
    /// Part that differs: `prompt`, `conversation`, `tools` or `parameters`.
    what: &'static str,
    /// A prompt as it was recorded, from the line that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<String>,
    /// The same as it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<String>,
}

tools! { pub(crate) REPLAY_FAMILY: "agents" for service AgentService, singleton agents;
    agent_replay: AgentReplay => AgentReplayed = AgentService::replay {
        name: "agent_replay", title: "Replay an execution", effect: Idempotent,
    };
}

impl AgentService {
    async fn replay(self: Arc<Self>, cx: CallCx, input: AgentReplay) -> Answer<AgentReplayed> {
        let records = self.runs.records(self.run_caller(&cx), &input.execution_id).await?;
        let whole = ExecutionState::of(&records)?;
        not_a_program(&whole)?;
        let recorded = &whole.begun.plan;
        let planned = match input.version.as_deref() {
            None => None,
            Some(version) => Some(self.planned_anew(&cx, recorded, version).await?),
        };
        let plan = planned.as_ref().unwrap_or(recorded);
        let session = ChildSession {
            parent: cx.session,
            // A name of its own: a session before it may have had other tools.
            name: format!("replay-{}", ExecutionId::new()),
            agent: Some(plan.agent.clone()),
            context: plan.security_context.clone(),
            tools: self.shown(&cx, &plan.tools),
        };
        // Tools are offered to sessions alone. Nothing is called in this one.
        let session = self.shared.children.open(session).await?;
        let tools = self.shared.children.tools(session);
        self.shared.children.end(session).await?;
        let ReplayOutcome { same, unknown, difference } = replay(&records, planned, &tools?)?;
        let differs = |RequestDifference { turn, what, texts }| {
            let (recorded, now) = texts.unzip();
            ReplayDifference { iteration: turn.0 + 1, turn: turn.1 + 1, what, recorded, now }
        };
        Ok(AgentReplayed {
            execution_id: whole.begun.id,
            same: difference.is_none(),
            requests: same,
            unknown,
            difference: difference.map(differs),
        })
    }

    /// Plan of another version of an agent for what an execution was asked.
    async fn planned_anew(
        &self,
        cx: &CallCx,
        recorded: &ExecutionPlan,
        version: &str,
    ) -> Answer<ExecutionPlan> {
        let version = Some(version).filter(|version| *version != "latest");
        let agent = recorded.agent_id.to_string();
        let (id, manifest) = self.manifest(self.caller(cx)?, &agent, version).await?;
        let mut input = recorded.input.clone();
        let constant = manifest.spec.task.input_data.iter().flatten();
        constant.for_each(|(key, _)| drop(input.remove(key)));
        let host = self.host(&manifest.spec);
        let (intent, chat) = (recorded.intent.clone(), recorded.chat.clone());
        let scheduled_for = recorded.scheduled_for;
        let request = ExecutionRequest { intent, input, chat, host, scheduled_for };
        ExecutionPlan::of(id, manifest, request, &self.options)
    }
}
