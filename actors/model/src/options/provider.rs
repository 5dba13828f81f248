//! Provider of the section: what it is, where it is, its models and its bounds.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::text_tools::ModelToolForm;

/// Most models of a provider.
const MAX_MODELS: usize = 64;

/// Name of a provider: 1 to 32 of a-z, 0-9, `_` and `-`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct ProviderName(String);

impl ProviderName {
    /// Text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ProviderName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match is_name(&text) {
            true => Ok(Self(text)),
            false => Err(format!(
                "`{text:.40}` is not a valid name of a provider: 1 to 32 of a-z, 0-9, `_`, `-`"
            )),
        }
    }
}

impl From<ProviderName> for String {
    fn from(name: ProviderName) -> Self {
        name.0
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn is_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    (1..=32).contains(&text.len()) && text.bytes().all(plain)
}

/// Kind of a provider: the wire that it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ModelProviderKind {
    /// OpenAI's API.
    Openai,
    /// A server that speaks as OpenAI's does.
    OpenaiCompatible,
    /// Anthropic's API, or a server that speaks as it does.
    Anthropic,
    /// Google's Gemini API.
    Gemini,
    /// Ollama.
    Ollama,
    /// llama.cpp's server, started and supervised by the daemon.
    LlamaServer,
    /// Replies from a file, for tests. It is no model, and each answer says so.
    Scripted,
}

impl ModelProviderKind {
    /// Word of the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::OpenaiCompatible => "openai-compatible",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::LlamaServer => "llama-server",
            Self::Scripted => "scripted",
        }
    }

    /// Root of the API, where everybody's is.
    fn endpoint(self) -> Option<&'static str> {
        match self {
            Self::Openai => Some("https://api.openai.com/v1"),
            Self::Anthropic => Some("https://api.anthropic.com/v1"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            Self::Ollama => Some("http://127.0.0.1:11434"),
            Self::OpenaiCompatible | Self::LlamaServer | Self::Scripted => None,
        }
    }
}

/// A provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelProviderOptions {
    /// API that the provider speaks.
    pub kind: ModelProviderKind,
    /// False keeps it away without forgetting how it is reached.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Root of its API, with its version: `http://127.0.0.1:8080/v1`. Plain http with a key only to this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Models by the names that the provider has for them; no others are asked for.
    #[serde(default)]
    pub models: BTreeMap<String, ModelOptions>,
    /// File that holds its key, read anew for each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Variable of the daemon's environment that holds its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// File with certificates (PEM) of authorities that are trusted beside the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// File with the replies of a `scripted` provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<PathBuf>,
    /// Program and arguments of a `llama-server`, which has to listen at `endpoint`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Folders of the host that the program sees, read-only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<String>,
    /// Whether it costs no money. Default: whether `endpoint` is on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<bool>,
    /// Requests at a time: 1 for a local one and 8 for another if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<usize>,
    /// Most requests that wait for their turn.
    #[serde(default = "default_queue")]
    pub queue: usize,
    /// Longest time that one waits.
    #[serde(default = "default_secs")]
    pub queue_secs: u64,
    /// Repetitions of a request that failed before it began to be answered.
    #[serde(default = "default_retries")]
    pub retries: usize,
    /// Time until an answer begins.
    #[serde(default = "default_first_secs")]
    pub first_token_secs: u64,
    /// Longest pause within an answer.
    #[serde(default = "default_secs")]
    pub idle_secs: u64,
    /// Largest answer in KiB, as the provider sends it.
    #[serde(default = "default_answer_kb")]
    pub max_answer_kb: usize,
    /// Failures in a row after which requests are refused at once.
    #[serde(default = "default_breaker_failures")]
    pub breaker_failures: u32,
    /// Time for which they are; then one is tried.
    #[serde(default = "default_breaker_secs")]
    pub breaker_secs: u64,
}

/// A model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelOptions {
    /// `generate` or `embed`.
    pub purpose: ModelPurpose,
    /// Most tokens of an answer for which the caller sets no bound, and the most that one may set; 2048 if
    /// not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// US dollars for a million tokens that are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_usd: Option<f64>,
    /// US dollars for a million tokens that are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_usd: Option<f64>,
    /// How tools are offered: `native` by the provider's API; `text`, described in words, for a model that calls none;
    /// `json`, with the answer held to a JSON Schema by the server.
    #[serde(skip_serializing_if = "is_native")]
    pub tools: ModelToolForm,
    /// Length of the vectors of a model that embeds; another is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimension: Option<usize>,
}

/// Purpose of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelPurpose {
    /// Answers.
    #[default]
    Generate,
    /// Vectors.
    Embed,
}

fn is_native(form: &ModelToolForm) -> bool {
    *form == ModelToolForm::Native
}
fn yes() -> bool {
    true
}
fn default_queue() -> usize {
    64
}
fn default_secs() -> u64 {
    60
}
fn default_first_secs() -> u64 {
    120
}
fn default_retries() -> usize {
    2
}
fn default_answer_kb() -> usize {
    8 * 1024
}
fn default_breaker_failures() -> u32 {
    5
}
fn default_breaker_secs() -> u64 {
    30
}

impl ModelProviderOptions {
    /// Root of the API, without a slash at its end.
    pub(crate) fn root(&self) -> &str {
        let root = self.endpoint.as_deref().or(self.kind.endpoint()).unwrap_or_default();
        root.trim_end_matches('/')
    }

    /// Whether it costs no money.
    pub(crate) fn is_local(&self) -> bool {
        self.local.unwrap_or_else(|| self.root().is_empty() || is_local(self.root()))
    }

    /// Requests at a time.
    pub(crate) fn at_a_time(&self) -> usize {
        self.parallel.unwrap_or(if self.is_local() { 1 } else { 8 })
    }

    /// Problems of the settings: key and reason of each.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = self.place_problems();
        let mut add = |key, why: &str| wrong.push((key, why.to_owned()));
        let files = [&self.key_file, &self.ca_file, &self.script];
        if files.into_iter().flatten().any(|path| !path.is_absolute()) {
            add("key_file", "files must have absolute paths");
        }
        if self.folders.iter().any(|path| !path.starts_with('/') || path == "/") {
            add("folders", "must be absolute paths below `/`");
        }
        if !(1..=MAX_MODELS).contains(&self.models.len()) {
            add("models", &format!("must have 1 to {MAX_MODELS} models"));
        }
        for (name, model) in &self.models {
            if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
                add("models", "has a name that is not valid: 1 to 128 characters");
            }
            let price = [model.input_usd, model.output_usd].into_iter().flatten();
            if price.into_iter().any(|usd| !(0.0..=1e6).contains(&usd)) {
                add("models", &format!("{name:.40}: a price must be between 0 and 1000000"));
            }
            if model.input_usd.is_some() != model.output_usd.is_some() {
                add("models", &format!("{name:.40}: give both prices or none"));
            }
        }
        for (key, value, least, most) in [
            ("parallel", self.at_a_time() as u64, 1, 256),
            ("queue", self.queue as u64, 0, 4_096),
            ("queue_secs", self.queue_secs, 1, 3_600),
            ("retries", self.retries as u64, 0, 10),
            ("first_token_secs", self.first_token_secs, 1, 3_600),
            ("idle_secs", self.idle_secs, 1, 3_600),
            ("max_answer_kb", self.max_answer_kb as u64, 1, 65_536),
            ("breaker_failures", self.breaker_failures.into(), 1, 1_000),
            ("breaker_secs", self.breaker_secs, 1, 3_600),
        ] {
            if !(least..=most).contains(&value) {
                add(key, &format!("must be between {least} and {most}"));
            }
        }
        wrong
    }

    /// Problems of the endpoint, the key, and the program or script behind them: key and reason of each.
    fn place_problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let mut add = |key, why: &str| wrong.push((key, why.to_owned()));
        let (scripted, server) =
            (self.kind == ModelProviderKind::Scripted, self.kind == ModelProviderKind::LlamaServer);
        let has_key = self.key_file.is_some() || self.key_env.is_some();
        match self.root() {
            "" if !scripted => add("endpoint", "is missing"),
            "" => {}
            _ if scripted => add("endpoint", "a scripted provider has none"),
            url if !is_web(url) => {
                add("endpoint", "is not a valid http or https URL without user and password");
            }
            url if has_key && url.starts_with("http:") && !is_local(url) => {
                add("endpoint", "a key is not sent over plain http to another host");
            }
            _ => {}
        }
        if scripted != self.script.is_some() {
            add("script", "a scripted provider needs it, and no other takes it");
        }
        if server == self.command.first().is_none_or(String::is_empty) {
            add("command", "a llama-server needs it, and no other takes it");
        }
        if self.key_file.is_some() && self.key_env.is_some() {
            add("key_file", "give either `key_file` or `key_env`");
        }
        let hosted = matches!(
            (self.kind, &self.endpoint),
            (
                ModelProviderKind::Openai
                    | ModelProviderKind::Anthropic
                    | ModelProviderKind::Gemini,
                None
            )
        );
        if hosted && !has_key {
            add("key_file", "give `key_file` or `key_env`: without a key it does not answer");
        }
        wrong
    }
}

/// True for an http or https URL without credentials, query and fragment.
pub(crate) fn is_web(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    })
}

/// True for a URL on this host.
pub(crate) fn is_local(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    })
}
