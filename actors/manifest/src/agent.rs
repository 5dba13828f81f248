//! Agent manifest (`agent/manifest/v1`) as plain data.

mod execution;
mod rules;
mod schedule;

use hivekeep_ports::ModelApi;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{
    ApiVersion, ByteSize, ImagePullPolicy, JsonObject, Labels, OutputHandler, ResourceLimits,
};

pub use execution::{
    AgentBudget, AgentCompaction, AgentDelivery, AgentExecution, CheckpointMode, Consensus,
    DeliveryCondition, DeliveryDestination, ExecutionMode, JudgeFallback, OutputFormat,
    OutputRules, OutputStream, ScriptRule, SemanticRule, SystemRules, ToolValidator, Transform,
    Validation, ValidationRules, Validator,
};
pub(crate) use rules::{check, check_delivery, check_tools};
pub use schedule::AgentTimes;

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
    /// Runtime, task and limits of the agent.
    pub spec: AgentSpec,
}

/// Kind of an agent's manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AgentKind {
    /// An agent.
    Agent,
    /// The same, by the name that older manifests give it.
    AgentManifest,
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
    /// Purpose of the agent, for people.
    pub description: Option<String>,
    /// Labels to find the agent by.
    pub labels: Option<Labels>,
    /// Notes of other programs.
    pub annotations: Option<Labels>,
}

/// Specification of an agent: its runtime, its task, how it runs and its limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSpec {
    /// Language or image that the agent runs in.
    pub runtime: AgentRuntime,
    /// Instruction, template of the prompt and constant input.
    pub task: AgentTask,
    /// Texts, files, folders and pages that the agent is given to read.
    pub context: Option<Vec<ContextItem>>,
    /// Accounts of services. Refused: the daemon keeps none.
    pub contexts: Option<Vec<ServiceAccount>>,
    /// Bounds of a run, with the validators and receivers of its result.
    pub execution: Option<AgentExecution>,
    /// Network, files and resources that the agent may use.
    pub security: Option<AgentSecurity>,
    /// Times at which the agent starts by itself.
    pub schedule: Option<AgentSchedule>,
    /// Names of the tools that the agent may call.
    pub tools: Option<Vec<String>>,
    /// Environment; `secret:NAME` is a reference.
    pub env: Option<Labels>,
    /// Storage.
    pub volumes: Option<Vec<AgentVolume>>,
    /// Rarely needed settings.
    pub advanced: Option<AgentAdvanced>,
    /// JSON Schema of the agent's input.
    pub input_schema: Option<JsonObject>,
    /// Name of the security context that the agent's calls are judged by.
    #[schemars(length(min = 1))]
    pub security_context: Option<String>,
    /// Receiver of the agent's result.
    pub output_handler: Option<OutputHandler>,
    /// Programs that the agent's commands may begin with.
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
    /// Program that works in place of the model's turns: `claude`, `codex`, `gemini`, `opencode`, `pi` or `qwen`.
    #[schemars(length(min = 1, max = 63))]
    pub program: Option<String>,
    /// Any other program, in place of `program`.
    pub command: Option<AgentCommand>,
}

/// Program that works in place of the model's turns. In its arguments and variables stand `{prompt}`, `{model}`,
/// `{url}` of the gateway to the model and its `{port}`, `{key}`, which is no key, and `{mcp}`, the program that is with
/// the arguments `mcp` and the port an MCP server of the agent's tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentCommand {
    /// Program and arguments.
    #[schemars(length(min = 1, max = 256))]
    pub argv: Vec<String>,
    /// How it tells its result. Default: `exit`.
    pub protocol: Option<ProgramProtocol>,
    /// API that it speaks to its model.
    pub wire: ProgramWire,
    /// Its variables.
    pub env: Option<Labels>,
}

/// How a program tells its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProgramProtocol {
    /// By its exit and what it writes.
    Exit,
    /// By the Agent Client Protocol over its input and output.
    Acp,
}

/// API that a program speaks to its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProgramWire {
    /// Chat completions of OpenAI.
    Chat,
    /// Responses of OpenAI.
    Responses,
    /// Messages of Anthropic.
    Messages,
    /// Contents of Google's Gemini.
    Gemini,
}

impl ProgramWire {
    /// The API, as the daemon's relay knows it.
    pub fn api(self) -> ModelApi {
        match self {
            Self::Chat => ModelApi::Chat,
            Self::Responses => ModelApi::Responses,
            Self::Messages => ModelApi::Messages,
            Self::Gemini => ModelApi::Gemini,
        }
    }
}

/// Isolation of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunIsolation {
    /// Isolation that the daemon is configured with.
    Inherit,
    /// A virtual machine.
    Firecracker,
    /// The same.
    Microvm,
    /// A container.
    Docker,
    /// A process.
    Process,
}

/// Task of an agent: the instruction, the template of its prompt and its constant input.
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

/// Source that an agent is given to read, by `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ContextItem {
    /// A text.
    Text {
        /// The text.
        content: String,
        /// Summary of the source, for the agent.
        description: Option<String>,
    },
    /// A file.
    File {
        /// Path of the source.
        path: String,
        /// Place that it is in, as file tools name one. Default: the execution's own.
        place: Option<String>,
        /// Summary of the source, for the agent.
        description: Option<String>,
    },
    /// A folder.
    Directory {
        /// Path of the source.
        path: String,
        /// Place that it is in, as file tools name one. Default: the execution's own.
        place: Option<String>,
        /// Summary of the source, for the agent.
        description: Option<String>,
    },
    /// A page of the web.
    Url {
        /// Address of the page.
        #[schemars(regex(pattern = "^https?://"))]
        url: String,
        /// Summary of the source, for the agent.
        description: Option<String>,
    },
}

/// Account of a service that an agent works with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceAccount {
    /// Service, as `imap`.
    pub service: String,
    /// True if the agent does not start without it.
    pub required: Option<bool>,
}

/// Network, files and resources that an agent may use.
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
    /// Hosts that the agent may reach.
    pub allowlist: Option<Vec<String>>,
    /// Hosts that the agent may not reach.
    pub denylist: Option<Vec<String>>,
}

/// Mode of an agent's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentNetworkMode {
    /// Hosts that `denylist` does not name.
    Allow,
    /// Hosts that `allowlist` names.
    Deny,
    /// No host.
    None,
}

/// Files of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentFilesystem {
    /// Paths that the agent may read.
    pub read: Option<Vec<String>>,
    /// Paths that the agent may write.
    pub write: Option<Vec<String>>,
    /// True if the agent may write nothing.
    pub read_only: Option<bool>,
}

/// Times at which an agent starts by itself, by `type`.
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
        /// Seconds between two runs, at most a year.
        #[schemars(range(min = 1, max = 31_536_000))]
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
    /// Tools that the dispatcher offers.
    pub capabilities: Vec<DispatcherCapability>,
}

/// Tool of a dispatcher, with the programs that it may start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DispatcherCapability {
    /// Name of the tool, as `cmd.run`.
    pub name: String,
    /// Programs that a command may begin with.
    pub subcommand_allowlist: Option<Vec<String>>,
}
