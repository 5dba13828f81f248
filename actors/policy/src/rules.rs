//! Rules as data, compiled: those that were added at run time, then those of the configuration.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use chrono::{DateTime, Utc};
use hivekeep_kernel::ToolSpec;
use hivekeep_runtime::log::{Sourced, stream};
use hivekeep_store::StreamId;
use serde::{Deserialize, Serialize};

use crate::{
    Question, ReasonCode, RuleEffect, RuleOptions, Verdict,
    condition::{Condition, Holds},
};

pub(crate) const LAYER: &str = "rules";
/// Most rules that can be added.
pub(crate) const MAX_RULES: usize = 1_000;

/// Rules that hold at one moment. Never changes; a change makes another one.
#[derive(Debug, Default)]
pub(crate) struct RuleSet {
    rules: Vec<CompiledRule>,
    /// Places of the rules of each of the daemon's own tools: a decision looks at no other's. Those of a
    /// source's tool are looked for at its call.
    by_tool: HashMap<&'static str, Vec<usize>>,
}

#[derive(Debug, Clone)]
pub(crate) struct CompiledRule {
    pub(crate) options: RuleOptions,
    /// True when it was added at run time.
    pub(crate) added: bool,
    condition: Option<Arc<Condition>>,
}

impl CompiledRule {
    /// Compiles a rule.
    ///
    /// # Errors
    /// What is wrong with its condition.
    pub(crate) fn new(options: RuleOptions, added: bool) -> Result<Self, String> {
        let condition = options.when.as_deref().map(Condition::new).transpose()?.map(Arc::new);
        Ok(Self { options, added, condition })
    }

    /// A path of a program says as much as its last part: either is enough to deny and to ask, to allow takes
    /// both.
    fn holds(&self, question: &Question<'_>) -> Holds {
        let Some(condition) = &self.condition else { return Holds::Yes };
        let (as_written, by_name) = condition.holds(question);
        let both = [Some(as_written), by_name].into_iter().flatten();
        let certainty = |holds: &Holds| match holds {
            Holds::No => 0,
            Holds::Unclear(_) => 1,
            Holds::Yes => 2,
        };
        let holds = match self.options.effect {
            RuleEffect::Allow => both.min_by_key(certainty),
            RuleEffect::Ask | RuleEffect::Deny => both.max_by_key(certainty),
        };
        holds.unwrap_or(Holds::No)
    }

    fn why(&self, does: &str) -> String {
        let RuleOptions { name, why, .. } = &self.options;
        match why.as_str() {
            "" => format!("the rule `{name}` {does}"),
            why => format!("the rule `{name}` {does}: {why}"),
        }
    }

    fn unclear(&self, what: &str) -> Verdict {
        let why = format!(
            "the rule `{}` cannot be judged, so a person is asked: {what}",
            self.options.name
        );
        Verdict::ask(LAYER, why).by(&self.options.name)
    }
}

impl RuleSet {
    /// Rules in their order, for these tools.
    pub(crate) fn new(rules: Vec<CompiledRule>, tools: &[&'static ToolSpec]) -> Self {
        let places = |tool: &&'static ToolSpec| (tool.name, places(&rules, tool));
        let by_tool = tools.iter().map(places).collect();
        Self { rules, by_tool }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &CompiledRule> {
        self.rules.iter()
    }

    /// A denial wins over everything, then what cannot be judged; of the others the first that matches.
    pub(crate) fn rule(&self, question: &Question<'_>) -> Verdict {
        let places = match self.by_tool.get(question.tool.name) {
            Some(places) => Cow::Borrowed(places),
            None => Cow::Owned(places(&self.rules, question.tool)),
        };
        if places.is_empty() {
            return Verdict::allow(LAYER, "no rule is about it");
        }
        let rules = || places.iter().map(|place| &self.rules[*place]);
        let mut unclear = None;
        for rule in rules().filter(|rule| rule.options.effect == RuleEffect::Deny) {
            match rule.holds(question) {
                Holds::Yes => {
                    let why = rule.why("denies it");
                    return Verdict::deny(LAYER, ReasonCode::PolicyDenied, why)
                        .by(&rule.options.name);
                }
                Holds::No => {}
                Holds::Unclear(what) => drop(unclear.get_or_insert_with(|| rule.unclear(&what))),
            }
        }
        if let Some(verdict) = unclear {
            return verdict;
        }
        for rule in rules().filter(|rule| rule.options.effect != RuleEffect::Deny) {
            let name = &rule.options.name;
            match (rule.options.effect, rule.holds(question)) {
                (RuleEffect::Deny, _) | (_, Holds::No) | (RuleEffect::Allow, Holds::Unclear(_)) => {
                }
                (RuleEffect::Allow, Holds::Yes) => {
                    return Verdict::allow(LAYER, rule.why("allows it")).by(name);
                }
                (RuleEffect::Ask, Holds::Yes) => {
                    return Verdict::ask(LAYER, rule.why("wants an approval")).by(name);
                }
                (RuleEffect::Ask, Holds::Unclear(what)) => return rule.unclear(&what),
            }
        }
        Verdict::allow(LAYER, "no rule matches")
    }
}

/// Places of the rules that are about a tool.
fn places(rules: &[CompiledRule], tool: &ToolSpec) -> Vec<usize> {
    let about =
        |rule: &CompiledRule| rule.options.tools.iter().any(|pattern| pattern.matches(tool.name));
    (0..rules.len()).filter(|place| about(&rules[*place])).collect()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum RuleRecord {
    Added { rule: RuleOptions, by: String, at: DateTime<Utc> },
    Removed { name: String, by: String, at: DateTime<Utc> },
}

/// Rules that were added at run time, the newest first: one event-sourced stream, `policy/rules`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct AddedRules(pub(crate) Vec<RuleOptions>);

impl Sourced for AddedRules {
    const KIND: &'static str = "policy";
    const FOLD_EVERY: usize = 256;
    type Record = RuleRecord;

    fn begin(record: RuleRecord) -> Result<Self, RuleRecord> {
        let mut rules = Self::default();
        rules.apply(record)?;
        Ok(rules)
    }

    fn apply(&mut self, record: RuleRecord) -> Result<(), RuleRecord> {
        match record {
            RuleRecord::Added { rule, .. } => self.0.insert(0, rule),
            RuleRecord::Removed { name, .. } => self.0.retain(|rule| rule.name != name),
        }
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}

pub(crate) fn rules_stream() -> StreamId {
    stream::<AddedRules>("rules").expect("a plain name")
}
