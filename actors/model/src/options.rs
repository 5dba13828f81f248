//! Section `[model]`.

mod provider;

use std::collections::BTreeMap;

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use provider::is_web;
pub use provider::{
    ModelOptions, ModelProviderKind, ModelProviderOptions, ModelPurpose, ProviderName,
};

/// Most providers.
const MAX_PROVIDERS: usize = 32;
/// Most models of an alias.
const MAX_ALIASED: usize = 16;

/// Language models that sessions may use through this host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Providers by name, none by default: `[model.provider.NAME]` with `kind` (`openai`,
    /// `openai-compatible`, `anthropic`, `gemini`, `ollama`, `llama-server` or `scripted`), `models`, and
    /// what that kind needs.
    pub provider: BTreeMap<ProviderName, ModelProviderOptions>,
    /// Aliases of models: `[model.alias.fast]` with `models = ["NAME/MODEL"]`. `default`, `fast`, `smart`,
    /// `cheap`, `local`, `judge` and `embed` are those that tools ask for; others may be added. Without a
    /// `default` it is the model that answers if there is only one.
    pub alias: BTreeMap<AliasName, AliasOptions>,
    /// Order of an alias's models, unless it has its own: `in-order`, `prefer-local`, `prefer-cloud`,
    /// `cost-optimized` or `latency-optimized`.
    pub strategy: Strategy,
    /// Bounds of spending.
    pub budget: BudgetOptions,
    /// Time of a request with its waits and repetitions.
    pub timeout_secs: u64,
    /// InfluxDB that `ml_status` reads.
    pub status: StatusOptions,
}

/// Name of an alias: 1 to 32 of a-z, 0-9, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct AliasName(String);

impl AliasName {
    /// Text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for AliasName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match provider::is_name(&text) {
            true => Ok(Self(text)),
            false => {
                Err(format!("`{text:.40}` is not a valid alias: 1 to 32 of a-z, 0-9, `_`, `-`"))
            }
        }
    }
}

impl From<AliasName> for String {
    fn from(name: AliasName) -> Self {
        name.0
    }
}

/// Models that an alias stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AliasOptions {
    /// Models as `NAME/MODEL`.
    pub models: Vec<String>,
    /// Order in which they are asked, in place of `model.strategy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Whether the next model is asked when one does not answer. The answer names those that failed.
    pub fallback: bool,
}

/// Order of models.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Order in which the alias lists them.
    #[default]
    InOrder,
    /// Local ones first.
    PreferLocal,
    /// Local ones last.
    PreferCloud,
    /// By price; those without a configured price last.
    CostOptimized,
    /// By the time to their first words, as measured; those not measured yet first.
    LatencyOptimized,
}

/// Bounds of what is spent. Reserved before a request and settled after it; 0 or absent is no bound.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetOptions {
    /// Most tokens of a session, read and written.
    pub session_tokens: u64,
    /// Most US dollars of a session. Models without a configured price are refused then.
    pub session_usd: f64,
    /// Most tokens of all sessions in a `period`.
    pub total_tokens: u64,
    /// Most US dollars of all sessions in a `period`.
    pub total_usd: f64,
    /// Period of the totals, by UTC: `day`, `month` or `ever`.
    pub period: BudgetPeriod,
}

/// Period of the totals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BudgetPeriod {
    /// A day.
    Day,
    /// A calendar month.
    #[default]
    Month,
    /// All time.
    Ever,
}

impl BudgetPeriod {
    /// Word of the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Ever => "ever",
        }
    }
}

/// InfluxDB with the progress of trainings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StatusOptions {
    /// Addresses that `ml_status` may ask, as `http://localhost:8086`. A token goes to no other. Empty:
    /// `ml_status` is refused.
    pub influx_urls: Vec<String>,
    /// File with the token, read for each call.
    pub token_file: Option<std::path::PathBuf>,
    /// Variable of the daemon's environment with the token.
    pub token_env: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            provider: BTreeMap::new(),
            alias: BTreeMap::new(),
            strategy: Strategy::default(),
            budget: BudgetOptions::default(),
            timeout_secs: 300,
            status: StatusOptions::default(),
        }
    }
}

impl Options {
    /// Problem of an alias's models; `None` for valid ones.
    fn alias_problem(&self, alias: &AliasOptions) -> Option<String> {
        if !(1..=MAX_ALIASED).contains(&alias.models.len()) {
            return Some(format!("`models` must have 1 to {MAX_ALIASED} entries"));
        }
        let unknown = |name: &&String| {
            let Some((provider, model)) = name.split_once('/') else { return true };
            let found = self.provider.iter().find(|(known, _)| known.as_str() == provider);
            !found.is_some_and(|(_, provider)| provider.models.contains_key(model))
        };
        let unknown = alias.models.iter().find(unknown)?;
        Some(format!("`{unknown:.80}` is not a model of a provider, as `NAME/MODEL`"))
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let mut add = |key, why: String| wrong.push((key, why));
        if self.provider.len() > MAX_PROVIDERS {
            add("provider", format!("has more than {MAX_PROVIDERS} providers"));
        }
        for (name, provider) in &self.provider {
            provider.problems().into_iter().for_each(|(key, why)| {
                add("provider", format!("{name}.{key}: {why}"));
            });
        }
        for (name, alias) in &self.alias {
            if self.provider.keys().any(|known| known.as_str() == name.as_str()) {
                add("alias", format!("{}: a provider has that name", name.as_str()));
            }
            if let Some(why) = self.alias_problem(alias) {
                add("alias", format!("{}: {why}", name.as_str()));
            }
        }
        if !(1..=3_600).contains(&self.timeout_secs) {
            add("timeout_secs", "must be between 1 and 3600".to_owned());
        }
        for usd in [self.budget.session_usd, self.budget.total_usd] {
            if !(0.0..=1e9).contains(&usd) {
                add("budget", "an amount must be between 0 and 1000000000".to_owned());
            }
        }
        if self.status.influx_urls.iter().any(|url| !is_web(url)) {
            add("status", "influx_urls: has one that is not a valid http or https URL".to_owned());
        }
        if self.status.token_file.as_ref().is_some_and(|path| !path.is_absolute()) {
            add("status", "token_file: must be an absolute path".to_owned());
        }
        wrong
    }
}
