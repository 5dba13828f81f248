//! The tool that has an agent written for a task in plain words.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, ToolError, tools};
use hivekeep_manifest::agent::AgentBudget;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{execution::plan::ExecutionRequest, tasks::types::TaskStarted, tools::AgentService};

/// Agent that writes agents; a user's own of the name goes first.
const CREATOR: &str = "agent-creator";

/// Have an agent written for a task and deployed. The execution that does it ends with the agent's id: wait for it
/// with aegis.agent.wait. An agent that does the task already is named instead.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentGenerate {
    /// Task of the agent, in plain words.
    #[schemars(length(min = 1, max = 65_536))]
    input: String,
}

tools! { pub(crate) FAMILY: "agents" for service AgentService, singleton agents;
    agent_generate: AgentGenerate => TaskStarted = AgentService::generate {
        name: "aegis.agent.generate", title: "Have an agent written", tier: Tier::System,
        open_world: true, told_by: Some("aegis.task.list"),
    };
}

impl AgentService {
    async fn generate(
        self: Arc<Self>,
        cx: CallCx,
        input: AgentGenerate,
    ) -> Result<TaskStarted, ToolError> {
        let request = ExecutionRequest { intent: Some(input.input), ..ExecutionRequest::default() };
        self.start(&cx, CREATOR, None, request, AgentBudget::default()).await
    }
}
