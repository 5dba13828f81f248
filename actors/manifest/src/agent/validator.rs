//! Validators of an agent's results: gradient checks as plain data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{JsonObject, Share};

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
        /// Schema that it has to fit.
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
        /// What it judges by.
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
        /// What they judge by.
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
        /// What it judges by.
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
