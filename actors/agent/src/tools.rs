//! The tools of agents.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, OnceLock, Weak},
};

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{AgentId, CallCx, ExecutionId, Layer, ToolError, User, tools};
use hivekeep_manifest::{
    MAX_TEXT_BYTES, agent::AgentSpec, common::OutputHandler, parse_agent, read_agent,
};
use hivekeep_manifest_registry::{
    DeployRequest, ManifestEntry, ManifestLabels, ManifestQuery, ManifestRegistry, RegistryCaller,
    RegistryLimits, check_tenant,
};
use hivekeep_ports::{
    ChildSessions, ImagePresence, Mails, Models, OwnWorkspaces, SessionQuotas, Tools,
    WorkspaceBounds,
};
use hivekeep_runtime::{
    Child, Daemon, Ports,
    runs::{RunOptions, Runs},
    schedule::Schedules,
    tool_catalogue::ToolCatalogue,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    DeployedAgent, Options, SHIPPED,
    execution::{
        ExecutionSaga, ExecutionShared,
        place::ExecutionMachines,
        plan::{AgentMachinePlan, MachineHost, reads_files},
        relatives,
        tree::ExecutionTree,
    },
    mail::Mailer,
    schedule::ScheduledAgent,
};

pub(crate) use hivekeep_manifest_registry::manifest_invalid as invalid;

type Answer<T> = Result<T, ToolError>;

/// Deploy an agent from its manifest, or a further version of one. A version never changes: give the next one
/// another number. An operator's agents are everybody's, others are their user's own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentCreate {
    /// The whole manifest, at most 256 KiB of YAML (`read_schema` of `agent/manifest/v1` shows its keys).
    #[schemars(length(max = MAX_TEXT_BYTES))]
    manifest_yaml: String,
    /// Replace this version, if it is there.
    #[serde(default)]
    force: bool,
}

/// Deploy a further version of an agent that is there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentUpdate {
    /// The whole manifest, at most 256 KiB of YAML, by the name of the agent.
    #[schemars(length(max = MAX_TEXT_BYTES))]
    manifest_yaml: String,
    /// Replace this version, if it is there.
    #[serde(default)]
    force: bool,
}

/// Agent that was deployed.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentDeployed {
    /// Id of the agent, the same for all its versions.
    agent_id: AgentId,
    /// True.
    deployed: bool,
    /// Name.
    name: String,
    /// Version that was deployed.
    version: String,
}

/// List the agents that you can use, each in its latest version: your own, and those that operators keep for
/// everybody. To find one for a task use aegis.agent.search.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentList {}

/// Agents that a caller can use.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentsListed {
    /// Sorted by name, the nearest scope first.
    agents: Vec<AgentRow>,
}

/// State of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AgentStatus {
    /// In use.
    Active,
    /// Held back; none is yet.
    Paused,
    /// Out of use by a fault; none is yet.
    Failed,
}

/// An agent in its latest version.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentRow {
    /// Id.
    id: AgentId,
    /// Name.
    name: String,
    /// Version.
    version: String,
    /// State.
    status: AgentStatus,
    /// Purpose of the agent.
    description: Option<String>,
    /// Labels.
    labels: ManifestLabels,
    /// Scope: `user`, `tenant` for everybody of this daemon, or `global` for what comes with it.
    scope: &'static str,
    /// User of a user's agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<User>,
    /// Next time of its schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_run_at: Option<DateTime<Utc>>,
}

/// Read an agent's manifest as it was deployed, byte for byte.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentExport {
    /// Name or id. Your own agent of a name comes before one that is everybody's.
    name: String,
    /// Version, as `1.2.3`. Default: the latest.
    version: Option<String>,
}

/// Manifest of an agent.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentExported {
    /// The text as it came.
    manifest_yaml: String,
    /// Id of the agent.
    id: AgentId,
    /// Name.
    name: String,
    /// Version of the manifest.
    version: String,
}

/// Delete an agent with all its versions, for good.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentDelete {
    /// Id of the agent.
    agent_id: String,
}

/// Agent that was deleted.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentDeleted {
    /// Its id.
    agent_id: AgentId,
    /// True.
    deleted: bool,
}

/// Find an agent for a task among those that you can use: say what it should do in a few words, or a part of
/// a name. The best come first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentSearch {
    /// Words, as `review a change`, or a part of a name.
    #[schemars(length(min = 1, max = 500))]
    query: String,
    /// Tenant to search in. Default: this daemon, `local`, which is the only one.
    tenant_id: Option<String>,
    /// Most agents to show, 1 to 100.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 100))]
    limit: usize,
    /// Least score, 0 to 1.
    #[serde(default = "some")]
    #[schemars(range(min = 0.0, max = 1.0))]
    min_score: f64,
    /// Labels with their values, all of which an agent has to have.
    #[serde(default)]
    labels: Option<ManifestLabels>,
    /// State of the agents. Default: any.
    status: Option<AgentStatus>,
    /// Show agents that come with the daemon, too.
    #[serde(default = "yes")]
    include_platform_templates: bool,
}

fn ten() -> usize {
    10
}

fn some() -> f64 {
    0.3
}

fn yes() -> bool {
    true
}

/// Agents that a query found.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentsFound {
    /// Name of the tool.
    tool: &'static str,
    /// Query.
    query: String,
    /// How they were found: `lexical`, by their words.
    search_mode: &'static str,
    /// Agents, the best first.
    results: Vec<FoundAgent>,
    /// How many were found in all.
    total: usize,
}

/// An agent that was found.
#[derive(Debug, Serialize, JsonSchema)]
struct FoundAgent {
    /// Agent.
    #[serde(flatten)]
    row: AgentRow,
    /// Score from 0 to 1: 1 for an agent whose name is the query; for the best of the others the share of the
    /// query's words that it has.
    score: f64,
}

tools! { pub(crate) FAMILY: "agents" for service AgentService, singleton agents;
    agent_create: AgentCreate => AgentDeployed = AgentService::create {
        name: "aegis.agent.create", title: "Deploy an agent", tier: Tier::System,
    };
    agent_list: AgentList => AgentsListed = AgentService::list {
        name: "aegis.agent.list", title: "List agents", effect: Read,
    };
    agent_update: AgentUpdate => AgentDeployed = AgentService::update {
        name: "aegis.agent.update", title: "Deploy a version of an agent", tier: Tier::System,
    };
    agent_export: AgentExport => AgentExported = AgentService::export {
        name: "aegis.agent.export", title: "Read an agent's manifest", effect: Read,
    };
    agent_delete: AgentDelete => AgentDeleted = AgentService::delete {
        name: "aegis.agent.delete", title: "Delete an agent", effect: Destroy, tier: Tier::Operator,
    };
    agent_search: AgentSearch => AgentsFound = AgentService::search {
        name: "aegis.agent.search", title: "Search agents", effect: Read,
    };
}

/// Agents of all users, and their executions.
pub(crate) struct AgentService {
    pub(crate) agents: ManifestRegistry<DeployedAgent>,
    pub(crate) runs: Runs<ExecutionSaga>,
    pub(crate) schedules: Schedules<ScheduledAgent>,
    /// This service, for its schedules.
    pub(crate) scheduling: Arc<OnceLock<Weak<Self>>>,
    pub(crate) shared: Arc<ExecutionShared>,
    pub(crate) sessions: Arc<dyn SessionQuotas>,
    pub(crate) options: Options,
    pub(crate) machines: Arc<ExecutionMachines>,
    pub(crate) ports: Ports,
    catalogue: Arc<dyn ToolCatalogue>,
    pub(crate) calls: Arc<dyn Tools>,
    /// Ends of those waits for budget to which a person has said no.
    pub(crate) declined: Mutex<BTreeMap<ExecutionId, DateTime<Utc>>>,
}

impl AgentService {
    /// Opens what is kept; the children go on with the executions and the schedules.
    pub(crate) async fn open(daemon: &Daemon, options: Options) -> Answer<(Self, [Child; 2])> {
        let limits = RegistryLimits {
            names: options.max_agents,
            bytes: options.max_manifests_mb.saturating_mul(1024 * 1024),
        };
        let mut agents = ManifestRegistry::open(daemon, limits).await?;
        for (id, text) in SHIPPED {
            let id = id.parse().map_err(|error| ToolError::internal(format!("{error}")))?;
            let manifest = parse_agent(text).map_err(|problems| invalid(&problems))?;
            agents.ship(id, &DeployedAgent(manifest), text)?;
        }
        let machines = Arc::new(ExecutionMachines::new(daemon, options.keep_workspace_secs)?);
        daemon.ports.offer::<dyn OwnWorkspaces>(machines.clone());
        let mailer = options.smtp.clone().map(|smtp| Arc::new(Mailer::new(smtp)));
        if let Some(mailer) = &mailer {
            daemon.ports.offer::<dyn Mails>(mailer.clone());
        }
        let shared = Arc::new(ExecutionShared {
            models: daemon.ports.need::<dyn Models>()?,
            children: daemon.ports.need::<dyn ChildSessions>()?,
            daemon: daemon.clone(),
            tree: ExecutionTree::default(),
            patience: TimeDelta::days(options.wait_days.into()),
            runs: OnceLock::new(),
            machines: machines.clone(),
            mailer,
            closing: daemon.closing.clone(),
        });
        let kept = RunOptions {
            max_running: options.max_running,
            kept: options.kept,
            kept_days: options.kept_days,
            ..RunOptions::default()
        };
        let (runs, child) = Runs::open(daemon, "executions", kept, shared.clone()).await?;
        let _the_first = shared.runs.set(runs.downgrade());
        relatives::restore(&runs, &shared).await?;
        let scheduling = Arc::new(OnceLock::new());
        let (schedules, times) = Schedules::open(daemon, "schedules", scheduling.clone()).await?;
        let service = Self {
            agents,
            runs,
            schedules,
            scheduling,
            shared,
            sessions: daemon.sessions.clone(),
            options,
            machines,
            ports: daemon.ports.clone(),
            catalogue: daemon.ports.need::<dyn ToolCatalogue>()?,
            calls: daemon.tools.clone(),
            declined: Mutex::default(),
        };
        service.restore_schedules().await;
        Ok((service, [child, times]))
    }

    /// Host of an agent's machine, with the tools that the agent names.
    pub(crate) fn host(&self, spec: &AgentSpec) -> MachineHost {
        let plain = |name: &str| name.replace('.', "_");
        let handler = match &spec.output_handler {
            Some(OutputHandler::McpTool { tool_name, .. }) => Some(tool_name),
            _ => None,
        };
        let asked = spec.tools.iter().flatten().chain(handler);
        let asked: BTreeSet<_> = asked.map(|name| plain(name)).collect();
        let delivery = spec.execution.as_ref().and_then(|it| it.delivery.as_ref());
        let transforms =
            delivery.is_some_and(|it| it.destinations.iter().any(|it| it.transform.is_some()));
        let all = self.catalogue.tools();
        let named =
            all.iter().map(|tool| tool.spec).filter(|spec| asked.contains(&plain(spec.name)));
        let images = self.ports.find::<dyn ImagePresence>();
        let image = spec.runtime.image.as_deref().zip(images);
        MachineHost {
            tools: named.collect(),
            runs_program: spec.runtime.program.is_some() || spec.runtime.command.is_some(),
            reads_files: reads_files(spec),
            transforms,
            bounds: self.ports.find::<WorkspaceBounds>(),
            has_image: image.is_some_and(|(image, here)| here.is_present(image) == Some(true)),
        }
    }

    /// Refuses a machine that the session of a call could not make for itself.
    pub(crate) fn may_have(&self, cx: &CallCx, machine: Option<&AgentMachinePlan>) -> Answer<()> {
        let bounds = self.ports.find::<WorkspaceBounds>();
        let needs = machine.map(|machine| machine.needs(bounds.as_deref())).unwrap_or_default();
        match needs.iter().find(|(tool, args)| !self.calls.allows(cx.session, &cx.view, tool, args))
        {
            None => Ok(()),
            Some((tool, args)) => {
                let message = format!(
                    "the agent's manifest asks for a machine that this session may not make: `{tool}` with {args}"
                );
                Err(ToolError::new(Layer::Policy, crate::codes::AGENT_MACHINE_DENIED, message)
                    .next("ask for less in `spec.runtime` and `spec.security`, or have somebody run it who may"))
            }
        }
    }

    /// Declared names of tools, without those that a call's attachment is not shown.
    pub(crate) fn shown(&self, cx: &CallCx, names: &BTreeSet<String>) -> BTreeSet<String> {
        let plain = |name: &str| name.replace('.', "_");
        let asked: BTreeSet<_> = names.iter().map(|name| plain(name)).collect();
        let all = self.catalogue.tools();
        let shown = all.iter().map(|tool| tool.spec).filter(|spec| cx.view.shows(spec));
        shown
            .map(|spec| spec.name)
            .filter(|name| asked.contains(&plain(name)))
            .map(str::to_owned)
            .collect()
    }

    pub(crate) fn caller(&self, cx: &CallCx) -> Answer<RegistryCaller> {
        RegistryCaller::of(cx, &*self.sessions)
    }

    async fn create(self: Arc<Self>, cx: CallCx, input: AgentCreate) -> Answer<AgentDeployed> {
        self.deploy(&cx, input.manifest_yaml, false, input.force).await
    }

    async fn update(self: Arc<Self>, cx: CallCx, input: AgentUpdate) -> Answer<AgentDeployed> {
        self.deploy(&cx, input.manifest_yaml, true, input.force).await
    }

    async fn deploy(
        &self,
        cx: &CallCx,
        text: String,
        update: bool,
        force: bool,
    ) -> Answer<AgentDeployed> {
        let caller = self.caller(cx)?;
        let all = self.catalogue.tools();
        let may = |spec| cx.view.shows(spec) && self.calls.may_call(cx.session, &cx.view, spec);
        let tools: Vec<_> = all.iter().map(|tool| tool.spec).filter(|spec| may(spec)).collect();
        let read = move || {
            let tools: Vec<_> = tools.into_iter().map(|spec| spec.name).collect();
            read_agent(&text, &tools).map(|manifest| (manifest, text))
        };
        let read = tokio::task::spawn_blocking(read).await;
        let read = read.map_err(|panic| ToolError::internal(panic.to_string()))?;
        let (manifest, text) = read.map_err(|problems| invalid(&problems))?;
        self.may_schedule(cx, &manifest.spec)?;
        let manifest = DeployedAgent(manifest);
        let name = manifest.0.metadata.name.clone();
        let request = DeployRequest { manifest, text, update, force };
        let (agent_id, version) = self.agents.deploy(caller, request).await?;
        self.follow_schedule(agent_id).await.map_err(|error| {
            let next = "the version is deployed; have its schedule followed by deploying it again with `force`";
            error.next(next).detail("agent_id", agent_id.to_string())
        })?;
        Ok(AgentDeployed { agent_id, deployed: true, name, version: version.to_string() })
    }

    async fn list(self: Arc<Self>, cx: CallCx, _: AgentList) -> Answer<AgentsListed> {
        let seen = self.agents.list(self.caller(&cx)?).into_iter();
        Ok(AgentsListed { agents: seen.map(|(id, entry)| self.row(id, &entry)).collect() })
    }

    async fn export(self: Arc<Self>, cx: CallCx, input: AgentExport) -> Answer<AgentExported> {
        let asked = input.version.as_deref();
        let (id, entry, kept) = self.agents.find(self.caller(&cx)?, &input.name, asked)?;
        Ok(AgentExported {
            manifest_yaml: kept.text.clone(),
            id,
            name: entry.name,
            version: kept.version.to_string(),
        })
    }

    async fn delete(self: Arc<Self>, cx: CallCx, input: AgentDelete) -> Answer<AgentDeleted> {
        let agent_id = self.agents.delete(self.caller(&cx)?, &input.agent_id).await?;
        self.follow_schedule(agent_id).await?;
        Ok(AgentDeleted { agent_id, deleted: true })
    }

    async fn search(self: Arc<Self>, cx: CallCx, input: AgentSearch) -> Answer<AgentsFound> {
        check_tenant(input.tenant_id.as_deref())?;
        let query = ManifestQuery {
            words: input.query.clone(),
            labels: input.labels.unwrap_or_default(),
            min_score: input.min_score,
            global: input.include_platform_templates,
        };
        let found = self.agents.search(self.caller(&cx)?, query).await?.into_iter();
        let found = found.map(|(score, id, entry)| FoundAgent { row: self.row(id, &entry), score });
        let wanted = |found: &FoundAgent| input.status.is_none_or(|it| it == found.row.status);
        let mut results: Vec<_> = found.filter(wanted).collect();
        let total = results.len();
        results.truncate(input.limit);
        let tool = cx.tool;
        Ok(AgentsFound { tool, query: input.query, search_mode: "lexical", results, total })
    }

    fn row(&self, id: AgentId, entry: &ManifestEntry<DeployedAgent>) -> AgentRow {
        let latest = entry.latest();
        AgentRow {
            id,
            name: entry.name.clone(),
            version: latest.version.to_string(),
            status: AgentStatus::Active,
            description: latest.description.clone(),
            labels: latest.labels.clone(),
            scope: entry.scope.name(),
            owner: entry.scope.owner(),
            next_run_at: self.schedules.get(id).and_then(|schedule| schedule.next),
        }
    }
}
