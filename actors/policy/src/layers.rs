//! Layers of the decision, in their order.

use std::collections::BTreeSet;

use hivekeep_kernel::{Effect, Risk, Tier, ToolSpec, view::same_family};

use crate::{
    AgentOptions, Options, PermissionMode, Question, ReasonCode, Ruling, SourceTrust, ToolPattern,
    Verdict, context,
    rules::{self, RuleSet},
};

const ALLOW_LIST: &str = "allow_list";

/// Options and rules that the layers rule by at one moment.
#[derive(Debug)]
pub(crate) struct LayerInputs<'a> {
    pub(crate) options: &'a Options,
    pub(crate) rules: &'a RuleSet,
}

/// A layer: its verdict, given those before it.
type LayerFn = fn(&LayerInputs<'_>, &Question<'_>, &[Verdict]) -> Verdict;

/// The layers, but for availability, which only the dispatcher knows.
pub(crate) const LAYERS: [LayerFn; 11] = [
    switch,
    visibility,
    |now, question, _| now.rules.rule(question),
    agent,
    lineage,
    allow_list,
    toolset,
    security_context,
    conversation,
    source,
    permission_mode,
];

fn switch(now: &LayerInputs<'_>, _: &Question<'_>, _: &[Verdict]) -> Verdict {
    match now.options.tools_enabled {
        true => Verdict::allow("switch", "tools are switched on"),
        false => {
            let why = "all tools are switched off; the operator sets `policy.tools_enabled`";
            Verdict::deny("switch", ReasonCode::SourceDisabled, why)
        }
    }
}

/// Tools for operators are for operators, and those of the system for its users and operators.
fn visibility(now: &LayerInputs<'_>, question: &Question<'_>, _: &[Verdict]) -> Verdict {
    let layer = "visibility";
    let deny = |why| Verdict::deny(layer, ReasonCode::VisibilityDenied, why);
    let operator = question.view.reaches(Tier::Operator);
    match question.tool.tier {
        Tier::Operator if !operator => deny("it is for operators; attach as one"),
        Tier::System if !operator && !now.options.system_users.contains(&question.user) => deny(
            "it is for agents of the system; the operator names its users in `policy.system_users`",
        ),
        _ => Verdict::allow(layer, "within the caller's tier"),
    }
}

fn of_agent<'a>(
    now: &LayerInputs<'a>,
    question: &Question<'_>,
) -> Option<(&'a str, &'a AgentOptions)> {
    let name = question.profile.agent.as_ref()?;
    now.options.agents.get_key_value(name).map(|(name, agent)| (name.as_str(), agent))
}

fn agent(now: &LayerInputs<'_>, question: &Question<'_>, _: &[Verdict]) -> Verdict {
    let tool = question.tool.name;
    let Some((name, agent)) = of_agent(now, question) else {
        return Verdict::allow("agent", "no agent's rules are about it");
    };
    match agent.deny_tools.iter().find(|pattern| pattern.matches(tool)) {
        Some(pattern) => {
            let why = format!("the agent `{name}` is denied `{pattern}` by `policy.agents`");
            Verdict::deny("agent", ReasonCode::PolicyDenied, why).by(name)
        }
        None => Verdict::allow("agent", "the agent's rules do not deny it"),
    }
}

/// A session that was narrowed has what it was given; a child without a list has nothing.
fn lineage(_: &LayerInputs<'_>, question: &Question<'_>, _: &[Verdict]) -> Verdict {
    let profile = question.profile;
    match (&profile.tools, profile.parent) {
        (None, None) => Verdict::allow("lineage", "the session is not narrowed"),
        (Some(tools), _) if tools.contains(question.tool.name) => {
            Verdict::allow("lineage", "the session was given it")
        }
        _ => {
            let why = "the session was made without it; make one that has it";
            Verdict::deny("lineage", ReasonCode::SessionDenied, why)
        }
    }
}

fn allow_list(now: &LayerInputs<'_>, question: &Question<'_>, _: &[Verdict]) -> Verdict {
    let open = || Verdict::allow(ALLOW_LIST, "no list is about it");
    let Some((name, agent)) = of_agent(now, question) else { return open() };
    if agent.tools.is_empty() && agent.toolsets.is_empty() {
        return open();
    }
    let spec = question.tool;
    let mut seen = BTreeSet::new();
    match in_list(now.options, &agent.tools, &agent.toolsets, spec, &mut seen) {
        true => Verdict::allow(ALLOW_LIST, "the agent's list has it").by(name),
        false => {
            let why = format!("the list of the agent `{name}` in `policy.agents` does not have it");
            Verdict::deny(ALLOW_LIST, ReasonCode::PolicyDenied, why).by(name)
        }
    }
}

/// True when a list of patterns and toolsets has a tool. A toolset that leads back to itself ends there.
fn in_list<'a>(
    options: &'a Options,
    tools: &[ToolPattern],
    toolsets: &'a [String],
    spec: &ToolSpec,
    seen: &mut BTreeSet<&'a str>,
) -> bool {
    tools.iter().any(|pattern| pattern.matches(spec.name))
        || toolsets.iter().any(|name| match options.toolsets.get(name) {
            Some(set) => {
                seen.insert(name) && in_list(options, &set.tools, &set.toolsets, spec, seen)
            }
            None => same_family(name, spec.family),
        })
}

/// An attachment has only the families that it asked for.
fn toolset(_: &LayerInputs<'_>, question: &Question<'_>, _: &[Verdict]) -> Verdict {
    let family = question.tool.family;
    match question.view.has_family(family) {
        true => Verdict::allow("toolset", "within the attachment's toolsets"),
        false => {
            let why =
                format!("the attachment was made without the toolset `{family}`; add it there");
            Verdict::deny("toolset", ReasonCode::PolicyDenied, why)
        }
    }
}

fn security_context(now: &LayerInputs<'_>, question: &Question<'_>, _: &[Verdict]) -> Verdict {
    let options = now.options;
    let Some(name) = options.context_of(question.user, question.profile) else {
        return Verdict::allow(context::LAYER, "no context limits it");
    };
    match options.contexts.get(name) {
        Some(found) => context::rule(name, found, question),
        // A session outlives a change of the configuration.
        None => {
            let why =
                format!("the session's context `{name}` is not in `policy.contexts` any more");
            Verdict::deny(context::LAYER, ReasonCode::PolicyDenied, why).by(name)
        }
    }
}

fn conversation(now: &LayerInputs<'_>, question: &Question<'_>, _: &[Verdict]) -> Verdict {
    let layer = "conversation";
    let Some(mode) = &question.profile.conversation else {
        return Verdict::allow(layer, "the conversation has no mode");
    };
    let tools = now.options.conversations.get(mode).map(|mode| &mode.tools);
    match tools.is_some_and(|tools| tools.iter().any(|one| one.matches(question.tool.name))) {
        true => Verdict::allow(layer, "the conversation's mode has it"),
        false => {
            let why = format!(
                "the mode `{mode}` of the conversation does not have it; `zaru.mode` asks for another"
            );
            Verdict::deny(layer, ReasonCode::SessionDenied, why).by(mode)
        }
    }
}

/// Tools of other servers are as trusted as the operator says. A rule that allows one, or an agent's list
/// that has it, says so for the call.
fn source(now: &LayerInputs<'_>, question: &Question<'_>, before: &[Verdict]) -> Verdict {
    let layer = "source";
    let Some(server) = question.tool.source else {
        return Verdict::allow(layer, "it is the daemon's own");
    };
    let trust = now.options.sources.get(server).copied().unwrap_or(now.options.source_default);
    let of_list = |verdict: &Verdict| {
        verdict.layer == ALLOW_LIST && verdict.ruling == Ruling::Allow && verdict.rule.is_some()
    };
    match trust {
        SourceTrust::Deny => {
            let why = format!(
                "the source `{server}` is switched off; the operator sets `policy.sources.{server}`"
            );
            Verdict::deny(layer, ReasonCode::SourceDisabled, why).by(server)
        }
        _ if before.iter().any(|verdict| by_rule(verdict) || of_list(verdict)) => {
            Verdict::allow(layer, "it was granted by name").by(server)
        }
        SourceTrust::Allow => Verdict::allow(layer, "the operator trusts the source").by(server),
        SourceTrust::Ask => {
            let why = format!("the source `{server}` is not trusted, so a person is asked");
            Verdict::ask(layer, why).by(server)
        }
    }
}

/// True for what a rule allowed.
fn by_rule(verdict: &Verdict) -> bool {
    verdict.layer == rules::LAYER && verdict.ruling == Ruling::Allow && verdict.rule.is_some()
}

fn permission_mode(now: &LayerInputs<'_>, question: &Question<'_>, before: &[Verdict]) -> Verdict {
    let layer = "permission_mode";
    if before.iter().any(by_rule) {
        return Verdict::allow(layer, "a rule allows it");
    }
    match permission_mode_of(now.options, question) {
        PermissionMode::ApproveAll => Verdict::allow(layer, "approve-all"),
        PermissionMode::ApproveReads if only_reads(question.tool) => {
            Verdict::allow(layer, "approve-reads: it only reads")
        }
        PermissionMode::ApproveReads => {
            Verdict::ask(layer, "approve-reads: it does more than read")
        }
        PermissionMode::DenyAll => {
            let why =
                "deny-all; the operator allows it by a rule, or sets `policy.permission_mode`";
            Verdict::deny(layer, ReasonCode::PolicyDenied, why)
        }
    }
}

/// The permission mode that a call is under: its agent's, or else the daemon's.
pub(crate) fn permission_mode_of(options: &Options, question: &Question<'_>) -> PermissionMode {
    let agent = question.profile.agent.as_ref().and_then(|name| options.agents.get(name));
    agent.and_then(|agent| agent.permission_mode).unwrap_or(options.permission_mode)
}

/// True for a tool that changes nothing, tells nobody outside and puts nothing at risk.
fn only_reads(spec: &ToolSpec) -> bool {
    spec.effect == Effect::Read
        && !spec.open_world
        && spec.risk == Risk::Low
        && spec.tier != Tier::Operator
}
