//! Agent manifest (`agent/manifest/v1`) as plain data.

mod execution;
mod rules;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{
    ApiVersion, ByteSize, ImagePullPolicy, JsonObject, Labels, OutputHandler, ResourceLimits,
};

pub use execution::{
    AgentDelivery, AgentExecution, Consensus, DeliveryCondition, DeliveryDestination,
    ExecutionMode, OutputStream, ToolValidator, Transform, Validator,
};
pub(crate) use rules::check;

/// Agent: a runtime, an instruction and the limits that it works in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentManifest {
    /// Version of the envelope: `100monkeys.ai/v1`.
    #[serde(rename = "apiVersion")]
    pub api_version: ApiVersion,
    /// Kind of the manifest.
    pub kind: AgentKind,
    /// Name, version and labels.
    pub metadata: AgentMetadata,
    /// What the agent is.
    pub spec: AgentSpec,
}

/// Kind of an agent's manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AgentKind {
    /// An agent.
    Agent,
}

/// Name, version and labels of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentMetadata {
    /// Name: `a-z`, `0-9` and inner `-`, at most 63.
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    pub name: String,
    /// Version, as `1.2.3`.
    #[schemars(regex(pattern = r"^[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}$"))]
    pub version: String,
    /// What it is for.
    pub description: Option<String>,
    /// Labels to find it by.
    pub labels: Option<Labels>,
    /// Notes of other programs.
    pub annotations: Option<Labels>,
}

/// What an agent is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSpec {
    /// What it runs in.
    pub runtime: AgentRuntime,
    /// What it has to do.
    pub task: AgentTask,
    /// What it is given to read.
    pub context: Option<Vec<ContextItem>>,
    /// How it is run and judged.
    pub execution: Option<AgentExecution>,
    /// What it may reach and use.
    pub security: Option<AgentSecurity>,
    /// When it runs by itself.
    pub schedule: Option<AgentSchedule>,
    /// Names of the tools that it may call.
    pub tools: Option<Vec<String>>,
    /// Environment; `secret:NAME` is a reference.
    pub env: Option<Labels>,
    /// Storage.
    pub volumes: Option<Vec<AgentVolume>>,
    /// Rarely needed settings.
    pub advanced: Option<AgentAdvanced>,
    /// JSON Schema of its input.
    pub input_schema: Option<JsonObject>,
    /// Name of the security context that its calls are judged by.
    #[schemars(length(min = 1))]
    pub security_context: Option<String>,
    /// Receiver of its result.
    pub output_handler: Option<OutputHandler>,
    /// Programs that its commands may begin with.
    pub builtin_dispatchers: Option<Vec<BuiltinDispatcher>>,
}

/// Runtime: a language with its version, or an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentRuntime {
    /// Language, as `aegis.runtime.list` names it. Needs `version`.
    pub language: Option<String>,
    /// Version of the language, in quotes.
    pub version: Option<String>,
    /// Reference of an image, in place of language and version.
    #[schemars(regex(pattern = "/"))]
    pub image: Option<String>,
    /// When the image is fetched. Default: `IfNotPresent`.
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Isolation. Default: `inherit`.
    pub isolation: Option<RunIsolation>,
    /// Alias of the model. Default: `default`.
    pub model: Option<String>,
    /// Temperature of the model.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
}

/// Isolation of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunIsolation {
    /// As the daemon is configured.
    Inherit,
    /// A virtual machine.
    Firecracker,
    /// A container.
    Docker,
    /// A process.
    Process,
}

/// What an agent has to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentTask {
    /// Instruction, not blank.
    #[schemars(regex(pattern = r"\S"))]
    pub instruction: String,
    /// Handlebars template of the prompt.
    pub prompt_template: Option<String>,
    /// Input that is always given.
    pub input_data: Option<JsonObject>,
}

/// Something to read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ContextItem {
    /// A text.
    Text {
        /// The text.
        content: String,
        /// What it is.
        description: Option<String>,
    },
    /// A file.
    File {
        /// Its path.
        path: String,
        /// What it is.
        description: Option<String>,
    },
    /// A folder.
    Directory {
        /// Its path.
        path: String,
        /// What it is.
        description: Option<String>,
    },
    /// A page of the web.
    Url {
        /// Its address.
        #[schemars(regex(pattern = "^https?://"))]
        url: String,
        /// What it is.
        description: Option<String>,
    },
}

/// What an agent may reach and use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSecurity {
    /// Network.
    pub network: Option<AgentNetwork>,
    /// Files.
    pub filesystem: Option<AgentFilesystem>,
    /// Resources.
    pub resources: Option<ResourceLimits>,
}

/// Network of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentNetwork {
    /// Mode. Default: `allow`.
    pub mode: Option<AgentNetworkMode>,
    /// Hosts that it may reach.
    pub allowlist: Option<Vec<String>>,
    /// Hosts that it may not reach.
    pub denylist: Option<Vec<String>>,
}

/// Mode of an agent's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentNetworkMode {
    /// What is not denied.
    Allow,
    /// What is allowed only.
    Deny,
    /// Nothing.
    None,
}

/// Files of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentFilesystem {
    /// Paths that it may read.
    pub read: Option<Vec<String>>,
    /// Paths that it may write.
    pub write: Option<Vec<String>>,
    /// True if it may write nothing.
    pub read_only: Option<bool>,
}

/// When an agent runs by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentSchedule {
    /// By the calendar.
    Cron {
        /// Cron expression of five fields.
        cron: String,
        /// Name of the time zone. Default: UTC.
        timezone: Option<String>,
        /// False to pause it. Default: true.
        enabled: Option<bool>,
    },
    /// At intervals.
    Interval {
        /// Seconds between two runs.
        #[schemars(range(min = 1))]
        seconds: u64,
    },
    /// Never.
    Manual {},
}

/// Storage of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentVolume {
    /// Name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Life. Default: `ephemeral`.
    pub storage_class: Option<StorageClass>,
    /// Kind of the storage. Default: `seaweedfs`.
    #[serde(rename = "type")]
    pub volume_type: Option<VolumeBackend>,
    /// Provider of the kind.
    pub provider: Option<String>,
    /// Settings of the kind.
    pub config: Option<JsonObject>,
    /// Where it appears: `/workspace` or below.
    #[schemars(regex(pattern = r"^/workspace(/[^/\x00]+)*$"))]
    pub mount_path: String,
    /// Access. Default: `read-write`.
    pub access_mode: Option<AccessMode>,
    /// Largest size, as `1Gi`.
    pub size_limit: ByteSize,
    /// Hours that an ephemeral one lives. Default: 24.
    #[schemars(range(min = 1))]
    pub ttl_hours: Option<u64>,
}

/// Life of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StorageClass {
    /// Until its time is over.
    Ephemeral,
    /// Until it is deleted.
    Persistent,
}

/// Kind of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VolumeBackend {
    /// The default.
    Seaweedfs,
    /// A service behind a common interface.
    Opendal,
    /// A folder of the host.
    #[serde(rename = "hostPath")]
    HostPath,
    /// A sealed store.
    Seal,
}

/// Access to a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    /// Reads only.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// Rarely needed settings of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentAdvanced {
    /// Instances that are kept ready.
    #[schemars(range(max = 1000))]
    pub warm_pool_size: Option<u64>,
    /// Script that runs before the agent.
    pub startup_script: Option<String>,
    /// Check that an instance is well.
    pub health_check: Option<JsonObject>,
    /// Path of the program that starts the agent.
    pub bootstrap_path: Option<String>,
}

/// Dispatcher of commands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BuiltinDispatcher {
    /// Name, as `cmd`.
    pub name: String,
    /// What it offers.
    pub capabilities: Vec<DispatcherCapability>,
}

/// What a dispatcher offers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DispatcherCapability {
    /// Name of the tool, as `cmd.run`.
    pub name: String,
    /// Programs that a command may begin with.
    pub subcommand_allowlist: Option<Vec<String>>,
}
