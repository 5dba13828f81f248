//! Names of models: aliases, providers and their models, and the order in which an alias's models are asked.
//!
//! A name that is not known is refused and never stands for another one.

use std::{collections::BTreeMap, sync::Arc};

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_ports::ModelUse;

use crate::{
    AliasOptions, Options, Strategy, codes,
    provider::{ProviderShared, usage},
    text_tools::ModelToolForm,
};

/// Aliases that tools ask for, whether or not they are set.
pub(crate) const KNOWN_ALIASES: [&str; 7] =
    ["default", "fast", "smart", "cheap", "local", "judge", "embed"];

/// A model of a provider.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) provider: Arc<ProviderShared>,
    pub(crate) model: String,
}

impl Candidate {
    /// Price of a million tokens read and one written; nothing for a local one; `None` where it is not known.
    pub(crate) fn price(&self) -> Option<(f64, f64)> {
        let model = self.provider.options.models.get(&self.model)?;
        let free = self.provider.options.is_local().then_some((0.0, 0.0));
        model.input_usd.zip(model.output_usd).or(free)
    }

    /// How the model is offered tools.
    pub(crate) fn tool_form(&self) -> ModelToolForm {
        let model = self.provider.options.models.get(&self.model);
        model.map(|model| model.tools).unwrap_or_default()
    }

    fn suits(&self, wanted: ModelUse) -> bool {
        let model = self.provider.options.models.get(&self.model);
        model.is_some_and(|model| usage(model) == wanted)
    }
}

/// All names.
pub(crate) struct ModelNames {
    pub(crate) providers: BTreeMap<String, Arc<ProviderShared>>,
    aliases: BTreeMap<String, AliasOptions>,
    strategy: Strategy,
}

impl ModelNames {
    /// Names of these providers, which are enabled, and of the configuration's aliases.
    pub(crate) fn new(providers: Vec<Arc<ProviderShared>>, options: &Options) -> Self {
        let providers =
            providers.into_iter().map(|provider| (provider.name.to_string(), provider)).collect();
        let aliases = options.alias.iter();
        let aliases = aliases.map(|(name, alias)| (name.as_str().to_owned(), alias.clone()));
        Self { providers, aliases: aliases.collect(), strategy: options.strategy }
    }

    /// Aliases that are set, with the models that they list.
    pub(crate) fn aliases(&self) -> &BTreeMap<String, AliasOptions> {
        &self.aliases
    }

    /// Models that a name stands for, in the order in which they are asked: one, unless an alias allows a
    /// fallback.
    ///
    /// # Errors
    /// `llm_not_configured`, `llm_unknown_backend`, `llm_unknown_model`.
    pub(crate) fn resolve(
        &self,
        name: &str,
        wanted: ModelUse,
    ) -> Result<Vec<Candidate>, ToolError> {
        if self.providers.is_empty() {
            let message = "no language model is configured: `[model.provider.NAME]` is missing";
            return Err(ToolError::new(Layer::Actor, codes::LLM_NOT_CONFIGURED, message)
                .next("the operator adds a provider to config.toml; see `hivekeep models`")
                .detail("key", "model.provider"));
        }
        if let Some(alias) = self.aliases.get(name) {
            return self.aliased(name, alias, wanted);
        }
        if let Some((provider, model)) = name.split_once('/')
            && self.providers.contains_key(provider)
        {
            return self.named(provider, model, wanted).map(|found| vec![found]);
        }
        if let Some(provider) = self.providers.get(name) {
            return self.only(&[provider], wanted).map(|found| vec![found]).ok_or_else(|| {
                let message = format!("`{name}` has not exactly one model for this; name one");
                unknown_model(message, &models(provider))
            });
        }
        if KNOWN_ALIASES.contains(&name) {
            let all: Vec<_> = self.providers.values().collect();
            let only = (name == "default").then(|| self.only(&all, wanted)).flatten();
            return only.map(|found| vec![found]).ok_or_else(|| {
                let message =
                    format!("no model is set for `{name}`: `model.alias.{name}` is missing");
                ToolError::new(Layer::Actor, codes::LLM_NOT_CONFIGURED, message)
                    .next("name a backend of `ml_backends`, or have the operator set the alias")
                    .detail("key", format!("model.alias.{name}"))
            });
        }
        let by_model = self.by_model(name, wanted);
        by_model.map(|found| vec![found]).ok_or_else(|| self.unknown_backend(name))
    }

    /// A provider's model by both names.
    ///
    /// # Errors
    /// `llm_unknown_backend`, `llm_unknown_model`.
    pub(crate) fn named(
        &self,
        provider: &str,
        model: &str,
        wanted: ModelUse,
    ) -> Result<Candidate, ToolError> {
        let Some(found) = self.providers.get(provider) else {
            return Err(self.unknown_backend(provider));
        };
        let candidate = Candidate { provider: found.clone(), model: model.to_owned() };
        match candidate.suits(wanted) {
            true => Ok(candidate),
            false => {
                let message = format!("`{provider}` has no model `{model:.128}` for this");
                Err(unknown_model(message, &models(found)))
            }
        }
    }

    fn aliased(
        &self,
        name: &str,
        alias: &AliasOptions,
        wanted: ModelUse,
    ) -> Result<Vec<Candidate>, ToolError> {
        let listed = alias.models.iter().map(|full| {
            let (provider, model) = full.split_once('/').unwrap_or((full, ""));
            self.named(provider, model, wanted)
        });
        let mut found = listed
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.detail("alias", name.to_owned()))?;
        order(&mut found, alias.strategy.unwrap_or(self.strategy));
        if !alias.fallback {
            found.truncate(1);
        }
        Ok(found)
    }

    /// The one model of these providers that is for this, if there is one.
    fn only(&self, among: &[&Arc<ProviderShared>], wanted: ModelUse) -> Option<Candidate> {
        let all = among.iter().flat_map(|provider| {
            let models = provider.options.models.keys();
            models.map(|model| Candidate { provider: (*provider).clone(), model: model.clone() })
        });
        let mut suitable = all.filter(|candidate| candidate.suits(wanted));
        suitable.next().filter(|_| suitable.next().is_none())
    }

    /// The model that alone has this name, of whichever provider.
    fn by_model(&self, name: &str, wanted: ModelUse) -> Option<Candidate> {
        let all = self.providers.values();
        let mut found = all
            .filter(|provider| provider.options.models.contains_key(name))
            .map(|provider| Candidate { provider: provider.clone(), model: name.to_owned() })
            .filter(|candidate| candidate.suits(wanted));
        found.next().filter(|_| found.next().is_none())
    }

    fn unknown_backend(&self, name: &str) -> ToolError {
        let names: Vec<_> = self.providers.keys().chain(self.aliases.keys()).cloned().collect();
        let message = format!("there is no backend or alias `{name:.64}`");
        ToolError::new(Layer::Actor, codes::LLM_UNKNOWN_BACKEND, message)
            .next("use one of those in `details.known`; `ml_backends` says more")
            .detail("known", names)
    }
}

fn models(provider: &ProviderShared) -> Vec<String> {
    provider.options.models.keys().map(|model| format!("{}/{model}", provider.name)).collect()
}

fn unknown_model(message: String, known: &[String]) -> ToolError {
    ToolError::new(Layer::Actor, codes::LLM_UNKNOWN_MODEL, message)
        .next("use one of those in `details.known`; `ml_backends` says what each is for")
        .detail("known", known.to_vec())
}

/// Orders models; equals stay as they are listed.
fn order(found: &mut [Candidate], strategy: Strategy) {
    match strategy {
        Strategy::InOrder => {}
        Strategy::PreferLocal => found.sort_by_key(|it| !it.provider.options.is_local()),
        Strategy::PreferCloud => found.sort_by_key(|it| it.provider.options.is_local()),
        Strategy::CostOptimized => found.sort_by(|one, other| {
            let price =
                |it: &Candidate| it.price().map_or(f64::INFINITY, |(read, write)| read + write);
            price(one).total_cmp(&price(other))
        }),
        Strategy::LatencyOptimized => {
            found.sort_by_key(|it| it.provider.health().first_piece.unwrap_or_default());
        }
    }
}
