//! Machine of an execution, as its manifest asks for it: read once, and refused where no machine holds it.
//!
//! | field | held by |
//! |---|---|
//! | `runtime.image`, `runtime.isolation`, `security.resources` | `workspace_create` |
//! | `security.network` | the workspace's network policy |
//! | `security.filesystem` | the tools that the agent names, and the one place that its session has |
//! | `env` | the workspace's variables |
//! | an ephemeral volume at `/workspace` | the workspace's disk, and when it ends |
//!
//! A program has no network but the port of its gateway where the manifest names none.
//! An agent that names no tool which works in a machine has none. Bounds of one hold then; what is to be given to
//! its programs is refused.

use std::sync::Arc;

use hivekeep_kernel::{Effect, ToolSpec};
use hivekeep_manifest::{
    agent::{
        AccessMode, AgentFilesystem, AgentNetwork, AgentNetworkMode, AgentRuntime, AgentSecurity,
        AgentSpec, AgentVolume, CheckpointMode, RunIsolation, StorageClass, VolumeBackend,
    },
    common::{ByteSize, ImagePullPolicy, JsonObject, Labels, ResourceLimits},
};
use hivekeep_ports::{OwnWorkspace, SESSION_PLACE, SizeBound, WorkspaceBounds};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::RefusedFields;

/// Families of tools that work in no machine of their session.
const NO_MACHINE: [&str; 16] = [
    "agents",
    "artifacts",
    "conversation",
    "events",
    "metrics",
    "ml",
    "runtime",
    "schema",
    "scripts",
    "sources",
    "system",
    "tasks",
    "tools",
    "vault",
    "volumes",
    "web",
];
/// Families of tools that work in a place of their session, and make no machine. All others may make one, or change
/// what one reaches.
const OWN_MACHINE: [&str; 9] =
    ["agent", "code", "dir", "dispatch", "file", "fs", "lang", "process", "rag"];

/// Folder of a workspace that is the agent's.
const FOLDER: &str = "/workspace";
/// Hours that an ephemeral volume lives where the manifest names none.
const TTL_HOURS: u64 = 24;
const MIB: u64 = 1024 * 1024;

type BoundOf = fn(&WorkspaceBounds) -> SizeBound;

const NO_TOOL: &str = "name a tool that works in a machine, such as `cmd.run`, or remove it";
const NO_NETWORK: &str = "a sandbox has no network: write `mode: none`, or have the operator give agents virtual machines";
const NO_SNAPSHOT: &str = "a sandbox has no snapshots: write `isolation: microvm`, on a host that has virtual \
    machines";
const NARROWER: &str = "list `/workspace` under `read` and `write`, or under `read` alone for an agent whose tools \
    only read";
const OTHER_VOLUME: &str = "one that is ephemeral, at /workspace and read-write is the machine's own disk; leave \
    others out";

/// Host of an execution's machine, and the tools that work there.
#[derive(Debug, Default)]
pub(crate) struct MachineHost {
    /// Tools that the agent names.
    pub(crate) tools: Vec<&'static ToolSpec>,
    /// True for an agent that is a program: it works in the machine itself.
    pub(crate) runs_program: bool,
    /// True for an agent that is given files of the machine to read.
    pub(crate) reads_files: bool,
    /// True for an agent whose output a script is run on.
    pub(crate) transforms: bool,
    /// Machines that the daemon makes; `None` where it makes none.
    pub(crate) bounds: Option<Arc<WorkspaceBounds>>,
    /// True if the manifest's image is known to be here.
    pub(crate) has_image: bool,
}

impl MachineHost {
    fn offers(&self, isolation: &str) -> bool {
        self.bounds.as_ref().is_some_and(|bounds| bounds.isolations.contains(&isolation))
    }

    /// Bound of a size; none is in it where the daemon makes no machines.
    fn bound(&self, of: BoundOf) -> SizeBound {
        self.bounds.as_ref().map_or(SizeBound { least: 0, default: 0, most: 0 }, |it| of(it))
    }

    /// Tools that work in a machine.
    fn working(&self) -> impl Iterator<Item = &&'static ToolSpec> {
        let of_source = |tool: &ToolSpec| tool.source.is_some();
        self.tools.iter().filter(move |tool| !of_source(tool) && !NO_MACHINE.contains(&tool.family))
    }

    /// True if anything of the agent works in a machine.
    fn works(&self) -> bool {
        self.runs_program || self.reads_files || self.transforms || self.working().next().is_some()
    }

    /// A tool that may reach other machines than the session's own.
    fn beyond(&self) -> Option<&'static str> {
        self.working().find(|tool| !OWN_MACHINE.contains(&tool.family)).map(|tool| tool.name)
    }
}

/// Machine that an execution is given. One that asks for nothing is made when a call first needs it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgentMachinePlan {
    /// Fields of `workspace_create`.
    pub(crate) request: JsonObject,
    /// Targets that it may reach beside those, as `network_policy` takes them.
    pub(crate) egress: Vec<String>,
    /// Variables of its commands.
    pub(crate) env: Labels,
    /// True if the execution works nowhere else.
    pub(crate) only: bool,
    /// Longest time in seconds that it is kept behind the execution's end.
    pub(crate) kept_secs: Option<u64>,
}

impl AgentMachinePlan {
    /// Plans the machine of a manifest; `None` where nothing is asked of one. `memory_mb` is what its program needs.
    pub(super) fn of(
        spec: &AgentSpec,
        host: &MachineHost,
        memory_mb: Option<u64>,
        refused: &mut RefusedFields,
    ) -> Option<Self> {
        let (mut plan, works) = (Self::default(), host.works());
        plan.runtime(&spec.runtime, host, works, refused);
        let mode = spec.execution.as_ref().and_then(|it| it.checkpoint).unwrap_or_default();
        if mode != CheckpointMode::None {
            plan.checkpoint(host, works, refused);
        }
        let security = spec.security.as_ref().filter(|_| works);
        if let Some(AgentSecurity { network, filesystem, resources }) = security {
            if let Some(resources) = resources {
                plan.resources(resources, "security.resources", host, refused);
            }
            if let Some(network) = network {
                plan.network(network, host, refused);
            }
            if let Some(filesystem) = filesystem {
                plan.filesystem(filesystem, host, refused);
            }
        }
        if let (Some(needed), Some(bounds)) = (memory_mb, &host.bounds)
            && needed > bounds.memory_mb.default
            && !plan.request.contains_key("memory_mb")
        {
            let field = "security.resources.memory";
            plan.size("memory_mb", needed, bounds.memory_mb, field, refused);
        }
        if host.runs_program && security.is_none_or(|security| security.network.is_none()) {
            plan.ask("allow_internet", false);
        }
        if let Some(env) = &spec.env {
            refused.add(!works, "env", NO_TOOL);
            for name in env.iter().filter(|(_, value)| value.starts_with("secret:")).map(|it| it.0)
            {
                let instead = "the daemon keeps no secrets for agents: remove it";
                refused.add(true, &format!("env.{name}"), instead);
            }
            plan.env.clone_from(env);
        }
        for (index, volume) in spec.volumes.iter().flatten().enumerate() {
            plan.volume(index, volume, host, refused);
        }
        (works && plan != Self::default()).then_some(plan)
    }

    /// Machine of a command in an image, which reaches no more than the agent's own one.
    pub(super) fn container(
        image: &str,
        resources: &ResourceLimits,
        field: &str,
        host: &MachineHost,
        own: Option<&Self>,
        refused: &mut RefusedFields,
    ) -> Self {
        let mut plan = Self::default();
        let instead = "this daemon makes no machines: hand the output to an agent or a webhook";
        refused.add(host.bounds.is_none(), field, instead);
        plan.resources(resources, &format!("{field}.resources"), host, refused);
        plan.ask("base_image", image);
        if let Some(reaches) = own.and_then(|own| own.request.get("allow_internet")) {
            plan.ask("allow_internet", reaches.clone());
        }
        plan
    }

    fn ask(&mut self, key: &str, value: impl Into<Value>) {
        self.request.insert(key.to_owned(), value.into());
    }

    fn runtime(
        &mut self,
        runtime: &AgentRuntime,
        host: &MachineHost,
        works: bool,
        refused: &mut RefusedFields,
    ) {
        let AgentRuntime {
            // They say what an agent is written for.
            language: _,
            version: _,
            image,
            image_pull_policy: pull,
            isolation,
            model: _,
            temperature: _,
            program: _,
            command: _,
        } = runtime;
        refused.add(image.is_some() && !works, "runtime.image", NO_TOOL);
        let instead = "write `IfNotPresent`: an image that is here is not fetched again";
        refused.add(*pull == Some(ImagePullPolicy::Always), "runtime.image_pull_policy", instead);
        let missing = *pull == Some(ImagePullPolicy::Never) && image.is_some() && !host.has_image;
        let instead = "have the operator pull the image first, or write `IfNotPresent`";
        refused.add(missing, "runtime.image_pull_policy", instead);
        if let Some(image) = image {
            self.ask("base_image", image.as_str());
        }
        let kind = match isolation {
            None | Some(RunIsolation::Inherit) => return,
            Some(RunIsolation::Process) => "sandbox",
            Some(RunIsolation::Firecracker | RunIsolation::Microvm) => "vm",
            Some(RunIsolation::Docker) => {
                let instead = "write `process` for a sandbox, `microvm`, or `inherit`";
                return refused.add(true, "runtime.isolation", instead);
            }
        };
        let instead = "this host has no isolation of that kind: write `inherit`";
        refused.add(!host.offers(kind), "runtime.isolation", instead);
        self.ask("isolation", kind);
    }

    /// Asks for a machine that can be snapshotted.
    fn checkpoint(&mut self, host: &MachineHost, works: bool, refused: &mut RefusedFields) {
        let sandbox = self.request.get("isolation").is_some_and(|kind| kind == "sandbox");
        refused.add(!works, "execution.checkpoint", NO_TOOL);
        refused.add(works && (sandbox || !host.offers("vm")), "execution.checkpoint", NO_SNAPSHOT);
        if works && !sandbox {
            self.ask("isolation", "vm");
        }
    }

    fn resources(
        &mut self,
        resources: &ResourceLimits,
        at: &str,
        host: &MachineHost,
        refused: &mut RefusedFields,
    ) {
        let ResourceLimits { cpu, memory, disk, timeout: _ } = resources;
        let size = |size: &Option<ByteSize>, unit| {
            size.as_ref().and_then(ByteSize::bytes).map(|bytes| bytes.div_ceil(unit))
        };
        let sizes: [(&str, &str, Option<u64>, BoundOf); 3] = [
            ("cpu", "vcpus", cpu.map(|share| share.div_ceil(1000)), |bounds| bounds.vcpus),
            ("memory", "memory_mb", size(memory, MIB), |bounds| bounds.memory_mb),
            ("disk", "disk_gb", size(disk, 1024 * MIB), |bounds| bounds.disk_gb),
        ];
        for (field, key, asked, bound) in sizes {
            let Some(asked) = asked else { continue };
            let field = format!("{at}.{field}");
            self.size(key, asked, host.bound(bound), &field, refused);
        }
    }

    fn size(
        &mut self,
        key: &str,
        asked: u64,
        SizeBound { least, most, .. }: SizeBound,
        field: &str,
        refused: &mut RefusedFields,
    ) {
        let instead = format!("{asked} is above `workspace.max_{key}`, {most}: ask for less");
        refused.add(asked > most, field, instead);
        self.ask(key, asked.max(least));
    }

    /// A list of what may be reached is the whole of it, whatever the mode.
    fn network(&mut self, network: &AgentNetwork, host: &MachineHost, refused: &mut RefusedFields) {
        let AgentNetwork { mode, allowlist, denylist } = network;
        let open = match (mode.unwrap_or(AgentNetworkMode::Allow), allowlist) {
            (AgentNetworkMode::Allow, None) => true,
            (AgentNetworkMode::Allow | AgentNetworkMode::Deny, Some(list)) => {
                self.egress.clone_from(list);
                false
            }
            (AgentNetworkMode::Deny, None) | (AgentNetworkMode::None, _) => false,
        };
        let reaches = open || !self.egress.is_empty();
        let denies = denylist.as_ref().is_some_and(|list| !list.is_empty());
        let instead = "name what may be reached under `allowlist`";
        refused.add(reaches && denies, "security.network.denylist", instead);
        let sandbox = self.request.get("isolation").is_some_and(|kind| kind == "sandbox");
        refused.add(reaches && (sandbox || !host.offers("vm")), "security.network", NO_NETWORK);
        if let Some(tool) = host.beyond().filter(|_| !open) {
            let instead = format!("leave `{tool}` out of `tools`: it may reach what this forbids");
            refused.add(true, "security.network", instead);
        }
        self.ask("allow_internet", open);
    }

    /// Paths within a machine are not told apart for its commands: what is granted is all of it, or reading alone
    /// to tools that only read.
    fn filesystem(
        &mut self,
        filesystem: &AgentFilesystem,
        host: &MachineHost,
        refused: &mut RefusedFields,
    ) {
        let AgentFilesystem { read, write, read_only } = filesystem;
        let covers = |paths: &Option<Vec<String>>| {
            let is_all = |path: &String| matches!(path.trim_end_matches('/'), "" | FOLDER);
            paths.iter().flatten().any(is_all)
        };
        let only_reads = !host.runs_program
            && !host.transforms
            && host.working().all(|tool| tool.effect == Effect::Read);
        let holds = covers(read) && (only_reads || covers(write) && *read_only != Some(true));
        refused.add(!holds, "security.filesystem", NARROWER);
        if let Some(tool) = host.beyond() {
            let instead = format!("leave `{tool}` out of `tools`: it may reach other files");
            refused.add(true, "security.filesystem", instead);
        }
        self.only = true;
    }

    fn volume(
        &mut self,
        index: usize,
        volume: &AgentVolume,
        host: &MachineHost,
        refused: &mut RefusedFields,
    ) {
        let AgentVolume {
            name: _,
            storage_class,
            volume_type,
            provider,
            config,
            mount_path,
            access_mode,
            size_limit,
            ttl_hours,
        } = volume;
        let own_disk = storage_class.is_none_or(|class| class == StorageClass::Ephemeral)
            && volume_type.is_none_or(|kind| kind == VolumeBackend::Seaweedfs)
            && (provider.is_none() && config.is_none() && mount_path == FOLDER)
            && access_mode.is_none_or(|mode| mode == AccessMode::ReadWrite);
        let field = format!("volumes[{index}]");
        if !own_disk || !host.works() {
            return refused.add(true, &field, if own_disk { NO_TOOL } else { OTHER_VOLUME });
        }
        let size = size_limit.bytes().unwrap_or(u64::MAX).div_ceil(1024 * MIB);
        let disk = self.request.get("disk_gb").and_then(Value::as_u64).unwrap_or(u64::MAX);
        self.size("disk_gb", disk.min(size), host.bound(|it| it.disk_gb), &field, refused);
        self.kept_secs = Some(ttl_hours.unwrap_or(TTL_HOURS).saturating_mul(3_600));
    }

    /// Calls that the asker's session has to be allowed: the machine is more than the daemon gives each session.
    pub(crate) fn needs(&self, bounds: Option<&WorkspaceBounds>) -> Vec<(&'static str, Value)> {
        let more = |key: &str, bound: BoundOf| {
            let asked = self.request.get(key).and_then(Value::as_u64);
            asked.is_some_and(|asked| bounds.is_none_or(|it| asked > bound(it).default))
        };
        let larger = more("vcpus", |it| it.vcpus)
            || more("memory_mb", |it| it.memory_mb)
            || more("disk_gb", |it| it.disk_gb);
        let other = ["base_image", "isolation"].iter().any(|key| self.request.contains_key(*key));
        let open = self.request.get("allow_internet") == Some(&Value::Bool(true));
        let create = Value::Object(self.request.clone());
        let create = (larger || other || open).then_some(("workspace_create", create));
        let egress = json!({ "workspace_id": SESSION_PLACE, "egress_allow": self.egress });
        let egress = (!self.egress.is_empty()).then_some(("network_policy", egress));
        create.into_iter().chain(egress).collect()
    }

    /// Own workspace of the execution's session.
    pub(crate) fn own_workspace(&self) -> OwnWorkspace {
        OwnWorkspace { request: self.request.clone(), only: self.only }
    }
}
