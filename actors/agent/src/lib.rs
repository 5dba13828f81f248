//! Agents: manifests that users and operators deploy, with every version.
//!
//! The texts are checked by `hivekeep-manifest` and kept by `hivekeep-manifest-registry`; here are the tools.
//! Nothing runs an agent yet.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod tools;

use std::sync::Arc;

use hivekeep_kernel::{AgentId, ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_manifest::agent::AgentManifest;
use hivekeep_manifest_registry::{ManifestLabels, RegisteredManifest, RegistryLimits};
use hivekeep_runtime::{Daemon, Family, FamilyOptions, Mounted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tools::AgentService;

/// Limits of each user's agents, and of those that the operators keep for everybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Agents by name; a user's tier may allow fewer (`agents`).
    #[schemars(range(min = 1))]
    pub max_agents: usize,
    /// Size of all versions of all manifests, held in memory. A version counts for at least 4 KiB.
    #[schemars(range(min = 1))]
    pub max_manifests_mb: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_agents: 500, max_manifests_mb: 16 }
    }
}

impl FamilyOptions for Options {}

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

/// Family of the agent tools; one actor below the root. Needs the daemon's port
/// [`ToolCatalogue`](hivekeep_runtime::tool_catalogue::ToolCatalogue).
pub struct AgentFamily;

impl Family for AgentFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- aegis.agent.search finds an agent for a task, aegis.agent.list shows all, aegis.agent.export gives a \
manifest back; aegis.agent.create and aegis.agent.update deploy one.";

    const HOLDS: &'static [&'static str] = &[DeployedAgent::HELD];

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILY.rows.iter().map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        [codes::ALL, hivekeep_manifest_registry::codes::ALL].concat()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let limits = RegistryLimits {
            names: options.max_agents,
            bytes: options.max_manifests_mb.saturating_mul(1024 * 1024),
        };
        let service = Arc::new(AgentService::open(daemon, limits).await?);
        let address = daemon.address("agents", RestartPolicy::ENTITY);
        Ok(Mounted::default().serving::<ServiceActor<AgentService>>(&address, service))
    }
}

#[cfg(test)]
mod tests;
