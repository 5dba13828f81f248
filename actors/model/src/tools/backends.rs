//! `ml_backends`.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::future::join_all;
use hivekeep_kernel::{CallCx, ToolError, serve::Reply, tools};
use hivekeep_ports::{ModelUse, Models};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    ModelProviderKind,
    catalogue::Candidate,
    failure::FailureKind,
    ledger::{SpendAccount, usd},
    models::{ModelsActor, ModelsShared},
    provider::{ProviderShared, ServerState, usage},
};

/// Time for a provider to say what it has.
const LIST_LIMIT: Duration = Duration::from_secs(5);

/// List the language models that can be used, whether each answers now, what aliases stand for, and what is
/// spent. Use it before you name a backend.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MlBackends {}

/// The backends.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlBackendList {
    /// Backends, by name.
    pub(crate) backends: Vec<MlBackend>,
    /// Model that answers where none is named, as `BACKEND/MODEL`; empty if nothing does.
    pub(crate) default: String,
    /// Aliases that are set.
    pub(crate) aliases: Vec<MlAlias>,
    /// Spending and its bounds.
    pub(crate) spent: MlSpent,
}

/// A backend.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlBackend {
    /// Name to use.
    pub(crate) name: String,
    /// API that the backend speaks; `scripted` is not a model.
    pub(crate) kind: &'static str,
    /// Whether it answers now.
    pub(crate) available: bool,
    /// `ready`, `starting`, `unreachable`, `auth_failed` or `left_alone` (it failed too often in a row).
    pub(crate) state: &'static str,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// The last request that it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_failure: Option<MlLastFailure>,
    /// Whether it costs no money.
    pub(crate) local: bool,
    /// Its models.
    pub(crate) models: Vec<MlModel>,
    /// Requests that it takes at a time, that run, and that wait.
    pub(crate) load: MlLoad,
    /// Requests that it answered and that it failed, since the daemon started.
    pub(crate) answered: u64,
    /// See `answered`.
    pub(crate) failed: u64,
    /// Time to the first words in milliseconds, as a moving average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_words_ms: Option<u64>,
}

/// A request that a backend failed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlLastFailure {
    /// When.
    pub(crate) at: DateTime<Utc>,
    /// Why.
    pub(crate) message: String,
}

/// Load of a backend.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlLoad {
    /// Requests at a time.
    pub(crate) parallel: usize,
    /// Requests that run.
    pub(crate) running: usize,
    /// Requests that wait.
    pub(crate) waiting: usize,
}

/// A model.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlModel {
    /// Name to use.
    pub(crate) name: String,
    /// `generate` or `embed`.
    pub(crate) purpose: &'static str,
    /// False if the backend answers and says that it does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) listed: Option<bool>,
    /// Requests and tokens of all sessions since the ledger began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) used: Option<MlAccount>,
}

/// An alias.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlAlias {
    /// Name to use.
    pub(crate) name: String,
    /// Models in the order in which they are asked now, as `BACKEND/MODEL`.
    pub(crate) models: Vec<String>,
    /// Whether the next is asked when one does not answer.
    pub(crate) fallback: bool,
}

/// Requests, tokens and money that are spent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlSpent {
    /// By this session.
    pub(crate) session: MlAccount,
    /// By all sessions in the budget's period.
    pub(crate) total: MlAccount,
    /// The period: `day`, `month` or `ever`.
    pub(crate) period: &'static str,
    /// Bounds, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<MlBudget>,
}

/// An account.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlAccount {
    /// Requests.
    pub(crate) requests: u64,
    /// Tokens, with those of requests that run or were cut by the daemon's end.
    pub(crate) tokens: u64,
    /// US dollars, as far as prices are configured.
    pub(crate) usd: f64,
}

/// Bounds; 0 is none.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlBudget {
    /// Tokens of a session.
    pub(crate) session_tokens: u64,
    /// US dollars of a session.
    pub(crate) session_usd: f64,
    /// Tokens of all sessions in the period.
    pub(crate) total_tokens: u64,
    /// US dollars of all sessions in the period.
    pub(crate) total_usd: f64,
}

impl From<SpendAccount> for MlAccount {
    fn from(account: SpendAccount) -> Self {
        let usd = usd(account.micro_usd);
        Self { requests: account.requests, tokens: account.tokens(), usd }
    }
}

impl ModelsActor {
    /// Serves `ml_backends`.
    pub(crate) fn backends(
        &mut self,
        cx: &CallCx,
        _: MlBackends,
    ) -> Result<Reply<MlBackendList>, ToolError> {
        self.work(cx, |shared, cx| async move {
            let models = &shared.models;
            let used = models.ledger.by_model();
            let providers = models.catalogue.providers.values();
            let backends = join_all(providers.map(|it| backend(it, &used))).await;
            let one = |name: &str| {
                let found = models.resolve(name, ModelUse::Generate);
                found.ok().and_then(|found| found.first().map(ToString::to_string))
            };
            let default = one("default").unwrap_or_default();
            Ok(MlBackendList {
                backends,
                default,
                aliases: aliases(&shared),
                spent: spent(&shared, &cx),
            })
        })
    }
}

async fn backend(
    provider: &Arc<ProviderShared>,
    used: &std::collections::HashMap<String, SpendAccount>,
) -> MlBackend {
    let health = provider.health();
    let (state, why, listed) = state(provider).await;
    let last = health.last_failure;
    let models = provider.options.models.iter().map(|(name, model)| MlModel {
        purpose: match usage(model) {
            ModelUse::Generate => "generate",
            ModelUse::Embed => "embed",
        },
        listed: listed.as_ref().map(|listed| listed.contains(name)),
        used: used.get(&format!("{}/{name}", provider.name)).map(|it| (*it).into()),
        name: name.clone(),
    });
    let parallel = provider.options.at_a_time();
    MlBackend {
        name: provider.name.to_string(),
        kind: provider.options.kind.word(),
        available: state == "ready",
        state,
        why,
        last_failure: last.map(|it| MlLastFailure { at: it.at, message: it.message }),
        local: provider.options.is_local(),
        models: models.collect(),
        load: MlLoad { parallel, running: health.running, waiting: health.waiting },
        answered: health.answered,
        failed: health.failed,
        first_words_ms: health.first_piece.and_then(|it| it.as_millis().try_into().ok()),
    }
}

type StateOfBackend = (&'static str, Option<String>, Option<Vec<String>>);

/// State of a provider, by asking it what it has.
async fn state(provider: &ProviderShared) -> StateOfBackend {
    if provider.options.kind == ModelProviderKind::LlamaServer {
        match &*provider.server.borrow() {
            ServerState::Ready => {}
            ServerState::Starting | ServerState::Unknown => return ("starting", None, None),
            ServerState::Down(why) => return ("unreachable", Some(why.clone()), None),
        }
    }
    let health = provider.health();
    if health.open_until.is_some_and(|until| until > Instant::now()) {
        return ("left_alone", health.last_failure.map(|it| it.message), None);
    }
    let Some(backend) = provider.backend() else { return ("starting", None, None) };
    match backend.list(LIST_LIMIT).await {
        Ok(listed) => ("ready", None, listed),
        // A compatible server need not have a list; that it answers is enough.
        Err(failure) if failure.kind == FailureKind::UnknownModel => ("ready", None, None),
        Err(failure) if failure.kind == FailureKind::Auth => {
            ("auth_failed", Some(failure.message), None)
        }
        Err(failure) => ("unreachable", Some(failure.message), None),
    }
}

fn aliases(shared: &ModelsShared) -> Vec<MlAlias> {
    let catalogue = &shared.models.catalogue;
    let row = |(name, alias): (&String, &crate::AliasOptions)| {
        let full = |it: &Candidate| format!("{}/{}", it.provider.name, it.model);
        let uses = [ModelUse::Generate, ModelUse::Embed];
        let found = uses.iter().find_map(|wanted| catalogue.resolve(name, *wanted).ok());
        MlAlias {
            name: name.clone(),
            models: found.unwrap_or_default().iter().map(full).collect(),
            fallback: alias.fallback,
        }
    };
    catalogue.aliases().iter().map(row).collect()
}

fn spent(shared: &ModelsShared, cx: &CallCx) -> MlSpent {
    let budget = &shared.models.options.budget;
    let (total, _, session) = shared.models.ledger.spent(cx.session);
    let bounds = MlBudget {
        session_tokens: budget.session_tokens,
        session_usd: budget.session_usd,
        total_tokens: budget.total_tokens,
        total_usd: budget.total_usd,
    };
    let bounded = *budget != crate::BudgetOptions { period: budget.period, ..Default::default() };
    MlSpent {
        session: session.into(),
        total: total.into(),
        period: budget.period.word(),
        budget: bounded.then_some(bounds),
    }
}

tools! { pub(crate) FAMILY: "ml" for ModelsActor, singleton models;
    ml_backends: MlBackends => MlBackendList = ModelsActor::backends {
        title: "List language models", effect: Read, open_world: true, timeout_secs: 30,
    };
}
