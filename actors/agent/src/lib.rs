//! Agents: manifests that users and operators deploy, with every version, and executions of them.
//!
//! ```text
//! agents                     the tools, and the registry of manifests
//! executions ─ execution*    durable runs: turns of a model, and the calls that it asks for; or a program of others
//!                            in a machine, with a gateway to its model
//! ```
//! The texts are checked by `hivekeep-manifest` and kept by `hivekeep-manifest-registry`; runs are begun, kept and
//! gone on with by [`hivekeep_runtime::runs`].
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod execution;
mod files;
mod gateway;
mod generate;
mod judges;
mod programs;
mod tasks;
mod tools;

use std::sync::Arc;

use hivekeep_kernel::{
    AgentId, ErrorCode, RestartPolicy, Service, ServiceActor, ToolError, ToolInfo,
};
use hivekeep_manifest::agent::{AgentBudget, AgentManifest};
use hivekeep_manifest_registry::{ManifestLabels, RegisteredManifest};
use hivekeep_ports::{Chats, ExecutionFiles};
use hivekeep_runtime::{Daemon, Family, FamilyOptions, Mounted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tools::AgentService;

/// Limits of each user's agents, of those that the operators keep for everybody, and of executions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Agents by name; a user's tier may allow fewer (`agents`).
    #[schemars(range(min = 1))]
    pub max_agents: usize,
    /// Size of all versions of all manifests, held in memory. A version counts for at least 4 KiB.
    #[schemars(range(min = 1))]
    pub max_manifests_mb: usize,
    /// Executions that run at a time, at most three quarters of them one user's; a user's tier may allow fewer
    /// (`executions`). One more is refused.
    #[schemars(range(min = 1))]
    pub max_running: usize,
    /// Turns of an iteration: requests to the model.
    #[schemars(range(min = 1, max = 1000))]
    pub max_turns: usize,
    /// Tokens of an execution, read and written. The turn that exceeds them is its last.
    #[schemars(range(min = 1))]
    pub max_tokens: u64,
    /// Bounds of the budget of an execution, which a manifest or a caller may lower and not raise; a user's tier
    /// may allow less (`execution_micro_usd`, `execution_tokens`, `execution_wall_secs`, `execution_tool_calls`).
    pub budget: AgentBudgetBounds,
    /// Days that an execution waits for more budget before it fails.
    #[schemars(range(min = 1, max = 365))]
    pub wait_days: u32,
    /// Name of the agent that a chat of an editor is with, unless its user has one of the name.
    pub chat_agent: String,
    /// Seconds that an execution's workspace is kept after its end, stopped, before it is destroyed; 0: not at all.
    #[schemars(range(max = 31_622_400))]
    pub keep_workspace_secs: u64,
    /// Executions that are over and kept.
    pub kept: usize,
    /// Days that an execution is kept after its end.
    pub kept_days: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_agents: 500,
            max_manifests_mb: 16,
            max_running: 16,
            max_turns: 100,
            max_tokens: 2_000_000,
            budget: AgentBudgetBounds::default(),
            wait_days: 30,
            chat_agent: "assistant".to_owned(),
            keep_workspace_secs: 3_600,
            kept: 1_000,
            kept_days: 30,
        }
    }
}

/// Bounds of the budget of an execution. None is set with 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentBudgetBounds {
    /// US dollars for models.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub usd: f64,
    /// Tokens, read and written.
    pub tokens: u64,
    /// Seconds of work.
    pub wall_secs: u64,
    /// Calls of tools.
    pub tool_calls: u64,
}

impl AgentBudgetBounds {
    /// The same as a manifest has it.
    fn budget(self) -> AgentBudget {
        let set = |amount: u64| Some(amount).filter(|amount| *amount > 0);
        AgentBudget {
            usd: Some(self.usd).filter(|usd| *usd > 0.0),
            tokens: set(self.tokens),
            wall_secs: set(self.wall_secs),
            tool_calls: set(self.tool_calls),
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        match (0.0..=1e6).contains(&self.budget.usd) {
            true => Vec::new(),
            false => vec![("budget", "usd must be between 0 and 1000000".to_owned())],
        }
    }
}

/// Manifests that are shipped with the daemon, each with the id that it always has: judges, a
/// creator of agents, and whoever a chat is with.
const SHIPPED: [(&str, &str); 5] = [
    ("agent_00000000000000000000000000000001", include_str!("../builtin/code-quality-judge.yaml")),
    ("agent_00000000000000000000000000000002", include_str!("../builtin/tool-call-judge.yaml")),
    ("agent_00000000000000000000000000000003", include_str!("../builtin/manifest-judge.yaml")),
    ("agent_00000000000000000000000000000004", include_str!("../builtin/agent-creator.yaml")),
    ("agent_00000000000000000000000000000005", include_str!("../builtin/assistant.yaml")),
];

/// Manifest of an agent, for the registry.
#[derive(Debug, Clone)]
pub(crate) struct DeployedAgent(AgentManifest);

impl RegisteredManifest for DeployedAgent {
    type Id = AgentId;

    const KIND: &'static str = "agent";
    const HELD: &'static str = "agents";
    const NOT_FOUND: &'static ErrorCode = codes::AGENT_NOT_FOUND;
    const LISTED_BY: &'static str = "aegis.agent.list";

    fn new_id() -> AgentId {
        AgentId::new()
    }

    fn name(&self) -> &str {
        &self.0.metadata.name
    }

    fn version(&self) -> &str {
        &self.0.metadata.version
    }

    fn description(&self) -> Option<&str> {
        self.0.metadata.description.as_deref()
    }

    fn labels(&self) -> ManifestLabels {
        self.0.metadata.labels.clone().unwrap_or_default()
    }

    /// Tools and language first: an instruction may be longer than what is kept of it.
    fn words(&self) -> String {
        let spec = &self.0.spec;
        let tools = spec.tools.as_deref().unwrap_or_default().join(" ");
        let language = spec.runtime.language.as_deref().unwrap_or_default();
        format!("{language} {tools}\n{}", spec.task.instruction)
    }
}

/// Family of the tools of agents and of their executions; two actors below the root. Needs the ports
/// [`ToolCatalogue`](hivekeep_runtime::tool_catalogue::ToolCatalogue), [`Models`](hivekeep_ports::Models),
/// [`ChildSessions`](hivekeep_ports::ChildSessions), [`Places`](hivekeep_ports::Places) and
/// [`WorkspaceFiles`](hivekeep_ports::WorkspaceFiles), and the limit of calls that wait; uses
/// [`WorkspaceBounds`](hivekeep_ports::WorkspaceBounds) and [`ImagePresence`](hivekeep_ports::ImagePresence). Offers
/// [`Chats`], [`ExecutionFiles`] and [`OwnWorkspaces`](hivekeep_ports::OwnWorkspaces).
pub struct AgentFamily;

impl Family for AgentFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- aegis.agent.search finds an agent for a task, aegis.agent.list shows all, aegis.agent.export gives a \
manifest back; aegis.agent.create and aegis.agent.update deploy one.
- aegis.task.execute runs an agent, aegis.task.wait waits for its result; an execution goes on without you, \
agent_continue talks to it.";

    const HOLDS: &'static [&'static str] = &[
        DeployedAgent::HELD,
        execution::state::HELD,
        "execution_micro_usd",
        "execution_tokens",
        "execution_wall_secs",
        "execution_tool_calls",
    ];

    fn tools() -> Vec<&'static ToolInfo> {
        let groups = <AgentService as Service>::TOOLS;
        groups.iter().flat_map(|group| group.rows.iter().map(|row| &row.0)).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        [codes::ALL, hivekeep_manifest_registry::codes::ALL].concat()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let (service, executions) = AgentService::open(daemon, options).await?;
        let address = daemon.address("agents", RestartPolicy::ENTITY);
        let (mut mounted, service) = (Mounted::default(), Arc::new(service));
        daemon.ports.offer::<dyn Chats>(service.clone());
        daemon.ports.offer::<dyn ExecutionFiles>(service.clone());
        mounted.children.push(executions);
        Ok(mounted.serving::<ServiceActor<AgentService>>(&address, service))
    }
}

#[cfg(test)]
mod tests;
