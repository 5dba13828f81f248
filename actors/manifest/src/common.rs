//! Value objects and expressions that several kinds of manifests share: cron, regular expressions and
//! JSON Schemas are texts, which are checked here.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use chrono_tz::Tz;
use hivekeep_runtime::json_schema::check_schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    problems::{ManifestPath, ProblemList},
    times::CronTimes,
};

/// Memory of one compiled regular expression.
const MAX_REGEX_BYTES: usize = 1024 * 1024;

/// JSON object of any content.
pub type JsonObject = serde_json::Map<String, Value>;
/// Texts by name.
pub type Labels = BTreeMap<String, String>;

/// The only version of the envelope of agents and workflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApiVersion {
    /// The first.
    #[serde(rename = "100monkeys.ai/v1")]
    V1,
}

/// Time span: seconds, or a number with `ms`, `s`, `m`, `h` or `d`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum TimeSpan {
    /// Seconds.
    Secs(u64),
    /// With a unit, such as `30s` or `5m`; digits alone are seconds.
    Text(#[schemars(regex(pattern = r"^[0-9]{1,12}(ms|s|m|h|d)?$"))] String),
}

impl TimeSpan {
    /// Length of the span; `None` for a text that is not one.
    pub fn duration(&self) -> Option<Duration> {
        let text = match self {
            Self::Secs(secs) => return Some(Duration::from_secs(*secs)),
            Self::Text(text) => text,
        };
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let number: u64 = number.parse().ok()?;
        let each = match unit {
            "ms" => return Some(Duration::from_millis(number)),
            "" | "s" => 1,
            "m" => 60,
            "h" => 60 * 60,
            "d" => 24 * 60 * 60,
            _ => return None,
        };
        Some(Duration::from_secs(number.saturating_mul(each)))
    }
}

/// Size: bytes, or a number with `K`, `M`, `G`, `T`, or `Ki`, `Mi`, `Gi`, `Ti`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ByteSize {
    /// Bytes.
    Bytes(u64),
    /// With a unit, such as `512Mi`; digits alone are bytes.
    Text(#[schemars(regex(pattern = r"^[0-9]{1,15}([KMGT]i?)?B?$"))] String),
}

impl ByteSize {
    /// Number of bytes, at most the greatest number; `None` for a text that is not a size.
    pub fn bytes(&self) -> Option<u64> {
        let text = match self {
            Self::Bytes(bytes) => return Some(*bytes),
            Self::Text(text) => text.strip_suffix('B').unwrap_or(text),
        };
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let base: u64 = if unit.ends_with('i') { 1024 } else { 1000 };
        let power = match unit.trim_end_matches('i') {
            "" => 0,
            "K" => 1,
            "M" => 2,
            "G" => 3,
            "T" => 4,
            _ => return None,
        };
        Some(number.parse::<u64>().ok()?.saturating_mul(base.pow(power)))
    }
}

/// Share from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Share(#[schemars(range(min = 0.0, max = 1.0))] pub f64);

/// When an image is fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// Before each start.
    Always,
    /// When it is missing.
    #[default]
    IfNotPresent,
    /// Never; a missing image is an error.
    Never,
}

/// Limits of a container or an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceLimits {
    /// Processor share in thousandths of one processor. Default: 1000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub cpu: Option<u64>,
    /// Memory. Default: `512Mi`.
    pub memory: Option<ByteSize>,
    /// Disk. Default: `1Gi`.
    pub disk: Option<ByteSize>,
    /// Longest run of the whole.
    pub timeout: Option<TimeSpan>,
}

/// Receiver of a final result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum OutputHandler {
    /// Another agent.
    Agent {
        /// Name or id of the agent.
        agent_id: String,
        /// Template of its input.
        input_template: Option<String>,
        /// Longest run in seconds.
        #[schemars(range(min = 1, max = 86_400))]
        timeout_seconds: Option<u64>,
        /// True if a failure of the handler fails the whole.
        #[serde(default)]
        required: bool,
    },
    /// A container.
    Container {
        /// Reference of the image.
        #[schemars(length(min = 1))]
        image: String,
        /// Program and arguments.
        #[schemars(length(min = 1))]
        command: Vec<String>,
        /// Environment.
        env: Option<Labels>,
        /// Limits.
        resources: Option<ResourceLimits>,
        /// True if a failure of the handler fails the whole.
        #[serde(default)]
        required: bool,
    },
    /// A tool.
    McpTool {
        /// Name of the tool.
        #[schemars(length(min = 1))]
        tool_name: String,
        /// Arguments; texts are templates.
        arguments: Option<JsonObject>,
        /// Longest run.
        timeout: Option<TimeSpan>,
        /// True if a failure of the handler fails the whole.
        #[serde(default)]
        required: bool,
    },
    /// An HTTP request.
    Webhook {
        /// Address.
        #[schemars(regex(pattern = "^https?://"))]
        url: String,
        /// Method. Default: `POST`.
        method: Option<HttpMethod>,
        /// Headers.
        headers: Option<Labels>,
        /// Template of the body.
        body_template: Option<String>,
        /// Longest time.
        timeout: Option<TimeSpan>,
        /// Attempts after a failure.
        retry: Option<AttemptLimit>,
        /// True if a failure of the handler fails the whole.
        #[serde(default)]
        required: bool,
    },
}

/// Method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// GET.
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

/// Attempts of something that may fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptLimit {
    /// Attempts in all.
    #[schemars(range(min = 1, max = 100))]
    pub max_attempts: u64,
    /// Pause between two.
    pub backoff: Option<TimeSpan>,
}

/// Attempts at a receiver that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendAttempts {
    /// Attempts in all.
    pub most: u64,
    /// Pause between two.
    pub pause: Duration,
}

impl Default for SendAttempts {
    fn default() -> Self {
        Self { most: 3, pause: Duration::from_secs(5) }
    }
}

impl SendAttempts {
    /// Attempts that are asked for; `None` for more than 10, or for pauses of more than a minute, in which nothing else
    /// has the place of what is over.
    pub fn of(retry: Option<&AttemptLimit>) -> Option<Self> {
        let usual = Self::default();
        let pause = retry.and_then(|retry| retry.backoff.as_ref()).and_then(TimeSpan::duration);
        let (most, pause) =
            (retry.map_or(usual.most, |it| it.max_attempts), pause.unwrap_or(usual.pause));
        (most <= 10 && pause <= Duration::from_secs(60)).then_some(Self { most, pause })
    }
}

/// Checks a cron expression of five fields, or its name.
pub(crate) fn check_cron(expression: &str, path: &ManifestPath, problems: &mut ProblemList<'_>) {
    if let Err(why) = CronTimes::parse(expression, Tz::UTC) {
        problems.add(path, why);
    }
}

/// Checks a regular expression.
pub(crate) fn check_regex(pattern: &str, path: &ManifestPath, problems: &mut ProblemList<'_>) {
    let built = regex::RegexBuilder::new(pattern).size_limit(MAX_REGEX_BYTES).build();
    if let Err(error) = built {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
        problems.add(path, format!("is not a valid regular expression: {reason}"));
    }
}

/// Checks a text that is a pattern if it begins with `re:`.
pub(crate) fn check_pattern(text: &str, path: &ManifestPath, problems: &mut ProblemList<'_>) {
    if let Some(expression) = text.strip_prefix("re:") {
        check_regex(expression, path, problems);
    }
}

/// Checks a JSON Schema.
pub(crate) fn check_json_schema(
    schema: &JsonObject,
    path: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    if let Err(error) = check_schema(&Value::Object(schema.clone())) {
        let at = ManifestPath::of_pointer(error.instance_path().as_str());
        let path = at.0.iter().fold(path.clone(), |path, step| path.join(step));
        problems.add(&path, "is not valid in a JSON Schema");
    }
}

/// Tells names of a list's items that are there twice.
pub(crate) fn check_unique<'n>(
    names: impl Iterator<Item = &'n String>,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    let mut seen = HashSet::new();
    for (index, name) in names.enumerate() {
        if !seen.insert(name) {
            problems.add(&at.join(index), format!("`{name}` is there twice"));
        }
    }
}
