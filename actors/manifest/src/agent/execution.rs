//! Execution of an agent as plain data: how it is run, the validators of its results, and their
//! receivers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{JsonObject, Share, TimeSpan};

/// Bounds of an agent's run, with the validators and receivers of its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentExecution {
    /// Whether the agent runs once, or until its validators are content. Default: `one-shot`.
    pub mode: Option<ExecutionMode>,
    /// Most iterations. Default: 5.
    #[schemars(range(min = 1, max = 20))]
    pub max_retries: Option<u64>,
    /// The same as `max_retries`.
    #[schemars(range(min = 1, max = 20))]
    pub max_iterations: Option<u64>,
    /// Longest iteration. Default: 600 s.
    pub iteration_timeout: Option<TimeSpan>,
    /// Longest wait for the model in seconds. Default: 300.
    #[schemars(range(min = 1, max = 86_400))]
    pub llm_timeout_seconds: Option<u64>,
    /// Memory between executions. Only `false` is taken.
    pub memory: Option<bool>,
    /// Validators of a result, as a list or by subject.
    pub validation: Option<Validation>,
    /// Validators of tool calls.
    pub tool_validation: Option<Vec<ToolValidator>>,
    /// Receivers of the result.
    pub delivery: Option<AgentDelivery>,
    /// Budget of an execution.
    pub budget: Option<AgentBudget>,
    /// When older turns of a conversation are replaced by a summary. Default: never.
    pub compaction: Option<AgentCompaction>,
    /// Snapshots of the machine, for forks and rewinds. Default: `none`.
    pub checkpoint: Option<CheckpointMode>,
}

/// Replacement of the older turns of a long conversation by a summary that the model writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentCompaction {
    /// Tokens of a conversation beyond which it is made shorter.
    #[schemars(range(min = 256, max = 100_000_000))]
    pub tokens: u64,
    /// Turns that stay as they are, the last ones. Default: 4.
    #[schemars(range(min = 1, max = 1000))]
    pub keep_turns: Option<u64>,
}

/// When a machine is snapshotted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckpointMode {
    /// Never.
    #[default]
    None,
    /// Before the first turn of an iteration, and behind each turn.
    Turn,
    /// Before the first turn of an iteration.
    Iteration,
}

/// Budget. At one of its bounds an execution waits for more. Executions that it begins count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentBudget {
    /// US dollars for models.
    #[schemars(range(min = 0.000_001, max = 1e6))]
    pub usd: Option<f64>,
    /// Tokens, read and written.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    pub tokens: Option<u64>,
    /// Seconds of work; waits do not count. A call that is under way is not cut short.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub wall_secs: Option<u64>,
    /// Calls of tools.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub tool_calls: Option<u64>,
}

/// How often an agent is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutionMode {
    /// Once.
    OneShot,
    /// Until the agent's validators are content.
    Iterative,
}

/// Validators of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Validation {
    /// In order; the first that fails ends the iteration.
    List(Vec<Validator>),
    /// By subject, in the order of the keys' declaration.
    Rules(Box<ValidationRules>),
}

/// Validators of a result by subject: `system`, `output`, `script`, `semantic`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValidationRules {
    /// End of the program.
    pub system: Option<SystemRules>,
    /// Form of the output.
    pub output: Option<OutputRules>,
    /// Program that judges the result.
    pub script: Option<ScriptRule>,
    /// Judgment by a model.
    pub semantic: Option<SemanticRule>,
}

/// End of the program that a result has to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemRules {
    /// True if the exit status has to be 0. Default: true.
    pub must_succeed: Option<bool>,
    /// False if text on standard error is a failure. Default: true.
    pub allow_stderr: Option<bool>,
    /// Longest run in seconds.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<u64>,
}

/// Form that an output has to have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputRules {
    /// Format. Default: `text`.
    pub format: Option<OutputFormat>,
    /// JSON Schema of the output, for `json` and `yaml`.
    pub schema: Option<JsonObject>,
    /// Regular expression that the output has to match.
    pub regex: Option<String>,
}

/// Format of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputFormat {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Any text.
    Text,
    /// Comma-separated values.
    Csv,
    /// A document. Refused: output is text.
    Pdf,
}

/// Program that judges a result by its exit status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptRule {
    /// Path of the script, where the agent works.
    #[schemars(length(min = 1))]
    pub path: String,
    /// Purpose of the script, for people.
    pub description: Option<String>,
    /// Longest run in seconds. Default: 30.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<u64>,
}

/// Judgment of a result by a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SemanticRule {
    /// False to leave it out. Default: true.
    pub enabled: Option<bool>,
    /// Alias of the model. Default: `default`.
    pub model: Option<String>,
    /// Template of the question to the model.
    pub prompt: Option<String>,
    /// Least score. Default: 0.8.
    pub threshold: Option<Share>,
    /// Longest wait for the model in seconds. Default: 30.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<u64>,
    /// Outcome without an answer of the model. Only `fail` is taken.
    pub fallback_on_unavailable: Option<JudgeFallback>,
}

/// Outcome of a judgment that no model gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JudgeFallback {
    /// The result counts as good. Refused.
    Skip,
    /// The result counts as bad.
    Fail,
}

/// Validator of a result, by `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Validator {
    /// Exit status.
    ExitCode {
        /// Status of a success. Default: 0.
        #[schemars(range(min = 0, max = 255))]
        expected: Option<u64>,
        /// Least score. Default: 1.
        min_score: Option<Share>,
    },
    /// Standard output as JSON.
    JsonSchema {
        /// Schema that the output has to fit.
        schema: JsonObject,
        /// Least score. Default: 1.
        min_score: Option<Share>,
    },
    /// A pattern in the output.
    Regex {
        /// Regular expression.
        pattern: String,
        /// Stream. Default: `stdout`.
        target: Option<OutputStream>,
        /// Least score. Default: 1.
        min_score: Option<Share>,
    },
    /// A judge.
    Semantic {
        /// Name of the judging agent.
        judge_agent: String,
        /// Criteria that the judge scores by.
        criteria: String,
        /// Least score. Default: 0.7.
        min_score: Option<Share>,
        /// Least confidence. Default: 0.
        min_confidence: Option<Share>,
        /// Longest run in seconds. Default: 300.
        #[schemars(range(min = 1, max = 86_400))]
        timeout_seconds: Option<u64>,
    },
    /// Several judges.
    MultiJudge {
        /// Names of the judging agents.
        #[schemars(length(min = 1))]
        judges: Vec<String>,
        /// How their scores become one. Default: `weighted_average`.
        consensus: Option<Consensus>,
        /// Judges that have to answer. Default: 1.
        #[schemars(range(min = 1))]
        min_judges_required: Option<u64>,
        /// Criteria that the judges score the result by.
        criteria: String,
        /// Least score. Default: 0.7.
        min_score: Option<Share>,
        /// Least confidence. Default: 0.
        min_confidence: Option<Share>,
        /// Longest run in seconds. Default: 300.
        #[schemars(range(min = 1, max = 86_400))]
        timeout_seconds: Option<u64>,
    },
}

/// Validator of tool calls, by `type`. Calls are judged before they are made, so only a judge can.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ToolValidator {
    /// A judge.
    Semantic {
        /// Name of the judging agent.
        judge_agent: String,
        /// Criteria that the judge scores by.
        criteria: String,
        /// Least score. Default: 0.7.
        min_score: Option<Share>,
        /// Least confidence. Default: 0.
        min_confidence: Option<Share>,
        /// Longest run in seconds. Default: 300.
        #[schemars(range(min = 1, max = 86_400))]
        timeout_seconds: Option<u64>,
    },
}

/// How several scores become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Consensus {
    /// Weighted mean.
    WeightedAverage,
    /// More for than against.
    Majority,
    /// All for.
    Unanimous,
    /// Mean of the best.
    BestOfN,
}

/// Stream of a program's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Receivers of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentDelivery {
    /// Receivers, each of which is told.
    pub destinations: Vec<DeliveryDestination>,
}

/// Receiver: exactly one of `email`, `webhook`, `rest`, `sms`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeliveryDestination {
    /// Name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Outcomes that the receiver is told of. Default: `always`.
    pub condition: Option<DeliveryCondition>,
    /// Program that makes the message of the result.
    pub transform: Option<Transform>,
    /// Settings of a mail.
    pub email: Option<JsonObject>,
    /// Settings of a webhook.
    pub webhook: Option<JsonObject>,
    /// Settings of a request.
    pub rest: Option<JsonObject>,
    /// Settings of a text message.
    pub sms: Option<JsonObject>,
}

/// Outcomes of a run that a receiver is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryCondition {
    /// Success.
    OnSuccess,
    /// Failure.
    OnFailure,
    /// Success and failure.
    Always,
}

/// Program that makes a message of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transform {
    /// Path of the script.
    pub script: String,
    /// Arguments.
    pub args: Option<Vec<String>>,
    /// Longest run in seconds. Default: 300.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<u64>,
}
