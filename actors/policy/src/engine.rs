//! Policy engine: the layers over the rules that hold now, which can be changed while calls run.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use chrono::Utc;
use hivekeep_kernel::{Layer, ToolError, ToolSpec};
use hivekeep_runtime::log::{Decision as Append, Log, LogError};
use hivekeep_store::{Journal, NewEvent};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    Approvals, Options, PermissionMode, Policy, PolicyDecision, Question, RuleOptions, Verdict,
    codes,
    layers::{LAYERS, LayerInputs, permission_mode_of},
    options::conversation_modes,
    rules::{AddedRules, CompiledRule, MAX_RULES, RuleRecord, RuleSet, rules_stream},
};

/// A rule as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRow {
    /// The rule.
    #[serde(flatten)]
    pub rule: RuleOptions,
    /// True when it was added at run time, and can be removed.
    pub added: bool,
}

/// Limits that a security context sets beside its capabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContextLimits {
    /// Largest result in bytes of JSON.
    pub max_result_bytes: Option<usize>,
    /// Calls of a session at a time.
    pub max_calls: Option<u32>,
}

/// The engine. Cheap to clone.
#[derive(Clone)]
pub struct PolicyEngine(Arc<Inner>);

struct Inner {
    options: Options,
    tools: Vec<&'static ToolSpec>,
    rules: ArcSwap<RuleSet>,
    log: Log<AddedRules>,
    approvals: Approvals,
    /// Counts changes of the rules.
    changes: watch::Sender<u64>,
}

impl fmt::Debug for PolicyEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolicyEngine")
    }
}

impl PolicyEngine {
    /// Opens the engine with the rules and approvals of the journal.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn open(
        mut options: Options,
        tools: Vec<&'static ToolSpec>,
        journal: Journal,
    ) -> Result<Self, LogError> {
        for (name, mode) in conversation_modes() {
            options.conversations.entry(name).or_insert(mode);
        }
        let log = Log::<AddedRules>::open(journal.clone(), rules_stream()).await?;
        let approvals = Approvals::open(options.approvals.clone(), journal).await?;
        let rules =
            ArcSwap::from_pointee(compiled(&options, &log.state().unwrap_or_default(), &tools));
        let changes = watch::Sender::default();
        Ok(Self(Arc::new(Inner { options, tools, rules, log, approvals, changes })))
    }

    /// Judges a call: `before` first, then the layers, then whether it can be served.
    pub fn decide(
        &self,
        question: &Question<'_>,
        before: &[Arc<dyn Policy>],
        availability: impl FnOnce() -> Verdict,
        verdicts: &mut Vec<Verdict>,
    ) -> PolicyDecision {
        let rules = self.0.rules.load();
        let now = LayerInputs { options: &self.0.options, rules: &rules };
        let mut decision = PolicyDecision::Allowed;
        verdicts.reserve_exact(before.len() + LAYERS.len() + 2);
        for policy in before {
            let verdict = policy.rule(question, verdicts);
            if !decision.hear(verdict, verdicts) {
                return decision;
            }
        }
        for layer in LAYERS {
            let verdict = layer(&now, question, verdicts);
            if !decision.hear(verdict, verdicts) {
                return decision;
            }
        }
        decision.hear(availability(), verdicts);
        decision
    }

    /// Limits of the security context that a call is in.
    pub fn limits(&self, question: &Question<'_>) -> ContextLimits {
        let options = &self.0.options;
        let context = options.context_of(question.user, question.profile);
        let context = context.and_then(|name| options.contexts.get(name));
        context.map_or_else(ContextLimits::default, |context| ContextLimits {
            max_result_bytes: context.max_result_bytes,
            max_calls: context.max_calls,
        })
    }

    /// The permission mode that a call is under.
    pub fn permission_mode(&self, question: &Question<'_>) -> PermissionMode {
        permission_mode_of(&self.0.options, question)
    }

    /// True when a mode of a conversation lets a session call what it could not call before. A session
    /// without a mode is bound by none.
    pub fn widens(&self, before: Option<&str>, mode: &str) -> bool {
        let modes = &self.0.options.conversations;
        match (before.map(|name| modes.get(name)), modes.get(mode)) {
            (None, _) => false,
            (Some(Some(before)), Some(mode)) => !mode.within(before),
            _ => true,
        }
    }

    /// Its options.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Approvals by people.
    pub fn approvals(&self) -> &Approvals {
        &self.0.approvals
    }

    /// Counts changes of the rules, for whoever lists tools by them.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Rules in the order in which they are asked.
    pub fn rules(&self) -> Vec<RuleRow> {
        let rules = self.0.rules.load();
        rules.iter().map(|rule| RuleRow { rule: rule.options.clone(), added: rule.added }).collect()
    }

    /// Adds a rule before all others. It holds when this returns, and is durable.
    ///
    /// # Errors
    /// `invalid_rule`, `journal_failed`.
    pub async fn add_rule(&self, rule: RuleOptions, by: &str) -> Result<(), ToolError> {
        let invalid = |why: String| ToolError::new(Layer::Policy, codes::INVALID_RULE, why);
        if let Some((key, why)) = rule.problem() {
            return Err(invalid(format!("`{key}` {why}")));
        }
        if self.0.options.rules.iter().any(|known| known.name == rule.name) {
            return Err(invalid(format!("the configuration has a rule `{}`", rule.name)));
        }
        let event = event("policy.rule_added", &rule.name, json!({ "by": by, "rule": rule }));
        self.change(move |added| {
            if added.0.iter().any(|known| known.name == rule.name) {
                return Err(invalid(format!("there is a rule `{}`", rule.name)));
            }
            if added.0.len() >= MAX_RULES {
                return Err(invalid(format!("there are {MAX_RULES} added rules")));
            }
            let (by, at) = (by.to_owned(), Utc::now());
            Ok(Append::record(RuleRecord::Added { rule, by, at }).event(event))
        })
        .await
    }

    /// Removes a rule that was added. It holds no longer when this returns.
    ///
    /// # Errors
    /// `rule_not_found`, `journal_failed`.
    pub async fn remove_rule(&self, name: &str, by: &str) -> Result<(), ToolError> {
        self.change(|added| {
            if !added.0.iter().any(|rule| rule.name == name) {
                return Err(ToolError::not_found(
                    Layer::Policy,
                    codes::RULE_NOT_FOUND,
                    "added rule",
                    name,
                ));
            }
            let record =
                RuleRecord::Removed { name: name.to_owned(), by: by.to_owned(), at: Utc::now() };
            Ok(Append::record(record).event(event(
                "policy.rule_removed",
                name,
                json!({ "by": by }),
            )))
        })
        .await
    }

    async fn change(
        &self,
        decide: impl FnOnce(&AddedRules) -> Result<Append<RuleRecord>, ToolError>,
    ) -> Result<(), ToolError> {
        let none = AddedRules::default();
        let inner = self.0.clone();
        let (done, durable) = tokio::sync::oneshot::channel();
        self.0.log.decide_then(
            |state| decide(state.unwrap_or(&none)),
            // Callbacks run in the order of the changes, so the later of two changes is compiled last.
            move |outcome| {
                if outcome.is_ok() {
                    let added = inner.log.state().unwrap_or_default();
                    inner.rules.store(Arc::new(compiled(&inner.options, &added, &inner.tools)));
                    inner.changes.send_modify(|count| *count += 1);
                }
                let _gone = done.send(outcome);
            },
        )?;
        let outcome =
            durable.await.map_err(|_| ToolError::internal("the journal dropped a rule"))?;
        Ok(outcome?)
    }
}

fn event(kind: &str, subject: &str, data: serde_json::Value) -> NewEvent {
    NewEvent { kind: kind.to_owned(), subject: subject.to_owned(), data }
}

/// Compiles the rules, which were judged when they came in. One that does not compile any more, as after an
/// upgrade, still stands for what it was: it is unclear to every call, and so asks.
fn compiled(options: &Options, added: &AddedRules, tools: &[&'static ToolSpec]) -> RuleSet {
    let one = |rule: &RuleOptions, added| match CompiledRule::new(rule.clone(), added) {
        Ok(rule) => Some(rule),
        Err(error) => {
            tracing::error!(
                rule = rule.name,
                error,
                "a rule cannot be read; it asks for everything"
            );
            let asks = RuleOptions { when: None, effect: crate::RuleEffect::Ask, ..rule.clone() };
            CompiledRule::new(asks, added).ok()
        }
    };
    let added = added.0.iter().filter_map(|rule| one(rule, true));
    let configured = options.rules.iter().filter_map(|rule| one(rule, false));
    RuleSet::new(added.chain(configured).collect(), tools)
}
