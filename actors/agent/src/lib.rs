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

pub mod acp;
pub mod codes;
mod execution;
mod families;
mod files;
mod gateway;
mod generate;
mod handlers;
mod judges;
mod mail;
mod options;
mod permit;
mod port;
mod programs;
mod schedule;
mod tasks;
mod tools;

use std::sync::Arc;

use hivekeep_kernel::{
    AgentId, ErrorCode, RestartPolicy, Service, ServiceActor, ToolError, ToolInfo,
};
use hivekeep_manifest::agent::AgentManifest;
use hivekeep_manifest_registry::{ManifestLabels, RegisteredManifest};
use hivekeep_ports::{Chats, ExecutionFiles, Executions};
use hivekeep_runtime::{Daemon, Family, Mounted};

pub use options::{AgentBudgetBounds, AgentCompactionOptions, Options, SmtpOptions, SmtpSecurity};
use tools::AgentService;

/// Manifests that are shipped with the daemon, each with the id that it always has: judges, creators of agents and of
/// workflows, whoever a chat is with, and the writers of the pipeline from a task to a program's result.
const SHIPPED: [(&str, &str); 8] = [
    ("agent_00000000000000000000000000000001", include_str!("../builtin/code-quality-judge.yaml")),
    ("agent_00000000000000000000000000000002", include_str!("../builtin/tool-call-judge.yaml")),
    ("agent_00000000000000000000000000000003", include_str!("../builtin/manifest-judge.yaml")),
    ("agent_00000000000000000000000000000004", include_str!("../builtin/agent-creator.yaml")),
    ("agent_00000000000000000000000000000005", include_str!("../builtin/assistant.yaml")),
    ("agent_00000000000000000000000000000006", include_str!("../builtin/workflow-creator.yaml")),
    ("agent_00000000000000000000000000000007", include_str!("../builtin/code-writer.yaml")),
    ("agent_00000000000000000000000000000008", include_str!("../builtin/result-writer.yaml")),
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

/// Family of the tools of agents and of their executions; three actors below the root. Needs the ports
/// [`ToolCatalogue`](hivekeep_runtime::tool_catalogue::ToolCatalogue), [`Models`](hivekeep_ports::Models),
/// [`ChildSessions`](hivekeep_ports::ChildSessions), [`Places`](hivekeep_ports::Places) and
/// [`WorkspaceFiles`](hivekeep_ports::WorkspaceFiles), and the limit of calls that wait; uses
/// [`WorkspaceBounds`](hivekeep_ports::WorkspaceBounds), [`ImagePresence`](hivekeep_ports::ImagePresence),
/// [`WorkspaceForks`](hivekeep_ports::WorkspaceForks) and [`People`](hivekeep_ports::People). Offers [`Chats`],
/// [`Executions`], [`ExecutionFiles`] and [`OwnWorkspaces`](hivekeep_ports::OwnWorkspaces).
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
        let (service, children) = AgentService::open(daemon, options).await?;
        let address = daemon.address("agents", RestartPolicy::ENTITY);
        let (mut mounted, service) = (Mounted::default(), Arc::new(service));
        daemon.ports.offer::<dyn Chats>(service.clone());
        daemon.ports.offer::<dyn ExecutionFiles>(service.clone());
        daemon.ports.offer::<dyn Executions>(service.clone());
        let _the_first = service.scheduling.set(Arc::downgrade(&service));
        mounted.children.extend(children);
        Ok(mounted.serving::<ServiceActor<AgentService>>(&address, service))
    }
}

#[cfg(test)]
mod tests;
