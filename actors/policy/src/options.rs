//! Options: `[policy]` of the configuration.

use std::collections::{BTreeMap, BTreeSet};

use hivekeep_kernel::User;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{SessionProfile, ToolPattern, condition::Condition};

/// Policy: who may call what, and what a person has to approve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// False refuses every tool call; the rest of the daemon goes on.
    pub tools_enabled: bool,
    /// Default ruling, on calls that nothing else rules on.
    pub permission_mode: PermissionMode,
    /// Rules, after those that were added at run time: a denial wins over everything; of the others the
    /// first that matches decides.
    pub rules: Vec<RuleOptions>,
    /// Rules of agents, by the name that a session says it works for.
    pub agents: BTreeMap<String, AgentOptions>,
    /// Security contexts: what sessions may do at most, by name.
    pub contexts: BTreeMap<String, ContextOptions>,
    /// Security context of users that `user_contexts` does not name; none limits nothing.
    pub default_context: Option<String>,
    /// Security contexts of users: `"uid:1000" = "careful"`.
    pub user_contexts: BTreeMap<User, String>,
    /// Toolsets of your own, for agents' lists, by name.
    pub toolsets: BTreeMap<String, ToolsetOptions>,
    /// Modes that a conversation is put into, by name: the only tools that its session may call then. Beside
    /// these there are chat, agentic, execute, architect and operator, unless one is set here.
    pub conversations: BTreeMap<String, ConversationOptions>,
    /// Users whose sessions may call what is for agents of the system itself (tier `system`), as operators may:
    /// `["uid:1000"]`.
    pub system_users: BTreeSet<User>,
    /// Trust in the MCP servers of `[source]`, by their names.
    pub sources: BTreeMap<String, SourceTrust>,
    /// Trust in those that `sources` does not name.
    pub source_default: SourceTrust,
    /// Approvals by people.
    pub approvals: ApprovalOptions,
}

/// Trust in the tools of another MCP server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceTrust {
    /// They are judged as the daemon's own.
    Allow,
    /// A person approves each call that no rule allows and no agent's list names.
    #[default]
    Ask,
    /// None is called.
    Deny,
}

/// Mode of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConversationOptions {
    /// Tools: names, or beginnings with `*`.
    pub tools: Vec<ToolPattern>,
    /// Text that a model is told when it is put into the mode.
    pub prompt: String,
}

/// Default ruling, on calls that nothing else rules on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PermissionMode {
    /// The call is denied, unless a rule allows it.
    DenyAll,
    /// A person approves everything but reading.
    ApproveReads,
    /// The call is made.
    #[default]
    ApproveAll,
}

/// Effect of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuleEffect {
    /// Without an approval, whatever the permission mode.
    Allow,
    /// Only with an approval.
    Ask,
    /// Never.
    Deny,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleOptions {
    /// Name, as refusals and approvals show it.
    pub name: String,
    /// Effect on calls that match.
    pub effect: RuleEffect,
    /// Tools: names, or beginnings with `*`.
    pub tools: Vec<ToolPattern>,
    /// Condition in CEL over `tool`, `session`, `args` and `commands`, the words of each command that the
    /// call runs: `commands.exists(c, c[0] == "git" && "push" in c)`. A program that is named by a path is
    /// judged as written and by its last part. Without a condition every call matches. What it cannot judge
    /// asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Why, for whoever meets it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Rules of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentOptions {
    /// The only tools that it may call, with those of `toolsets`; none of either allow all.
    pub tools: Vec<ToolPattern>,
    /// Toolsets, of `policy.toolsets` or of the catalogue.
    pub toolsets: Vec<String>,
    /// Tools that it may not call.
    pub deny_tools: Vec<ToolPattern>,
    /// In place of `policy.permission_mode`.
    pub permission_mode: Option<PermissionMode>,
}

/// Security context: a call is allowed by the first capability that takes it, and denied otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContextOptions {
    /// Tools that are denied whatever the capabilities say.
    pub deny: Vec<ToolPattern>,
    /// Capabilities: actions that the context allows.
    pub capabilities: Vec<CapabilityOptions>,
    /// Largest result of a call, in bytes of JSON, where the tool allows more. A larger one is kept as an
    /// artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_result_bytes: Option<usize>,
    /// Calls of a session at a time. One more is refused as retryable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u32>,
}

/// Capability of a context. A list that is left out limits nothing; an empty one admits nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapabilityOptions {
    /// Tools: names, or beginnings with `*`.
    pub tools: Vec<ToolPattern>,
    /// Paths that calls may name, the folder of a place among them: a path, or a folder and `/**`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
    /// Commands that calls may run: first words as they are written, as `cargo test`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Vec<String>>,
    /// Hosts that calls may name, with all below them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domains: Option<Vec<String>>,
}

/// A toolset of one's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolsetOptions {
    /// Tools: names, or beginnings with `*`.
    pub tools: Vec<ToolPattern>,
    /// Toolsets within it, of `policy.toolsets` or of the catalogue.
    pub toolsets: Vec<String>,
}

/// Approvals by people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalOptions {
    /// How long a call waits for a person, and how long an approval or a token is good, in seconds.
    #[schemars(range(min = 1, max = 600))]
    pub timeout_secs: u64,
    /// Whether whoever calls may approve it: a credential at any door, a user of this host over the same one.
    pub self_approval: bool,
    /// Whether the person at an MCP client may approve its calls, by elicitation.
    pub elicitation: bool,
    /// Approvals that wait at a time, and questions beside them, of which one user has at most half. One more
    /// is refused.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_pending: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tools_enabled: true,
            permission_mode: PermissionMode::default(),
            rules: Vec::new(),
            agents: BTreeMap::new(),
            contexts: BTreeMap::new(),
            default_context: None,
            user_contexts: BTreeMap::new(),
            toolsets: BTreeMap::new(),
            conversations: BTreeMap::new(),
            system_users: BTreeSet::new(),
            sources: BTreeMap::new(),
            source_default: SourceTrust::default(),
            approvals: ApprovalOptions::default(),
        }
    }
}

impl Default for ApprovalOptions {
    fn default() -> Self {
        Self { timeout_secs: 120, self_approval: false, elicitation: false, max_pending: 256 }
    }
}

impl RuleOptions {
    /// Problem of the rule that its types do not refuse: key and reason.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        if self.name.is_empty() || self.name.len() > 64 || self.name.chars().any(char::is_control) {
            return Some(("name", "must have from 1 to 64 characters".to_owned()));
        }
        if self.tools.is_empty() {
            return Some(("tools", "must name a tool; `*` is all".to_owned()));
        }
        let condition = self.when.as_deref().map(Condition::new);
        condition.and_then(Result::err).map(|why| ("when", why))
    }
}

impl Options {
    /// Name of the context that a session is in: its own, its user's, or the one of everybody.
    pub fn context_of<'a>(&'a self, user: User, profile: &'a SessionProfile) -> Option<&'a String> {
        let of_user = || self.user_contexts.get(&user).or(self.default_context.as_ref());
        profile.context.as_ref().or_else(of_user)
    }

    /// Everything that is wrong beyond what the types refuse: key and reason.
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut names = BTreeSet::new();
        for (nth, rule) in self.rules.iter().enumerate() {
            if let Some((key, why)) = rule.problem() {
                problems.push((format!("rules[{nth}].{key}"), why));
            }
            if !names.insert(&rule.name) {
                problems.push((format!("rules[{nth}].name"), format!("`{}` is taken", rule.name)));
            }
        }
        let users =
            self.user_contexts.iter().map(|(user, name)| (format!("user_contexts.{user}"), name));
        let default = self.default_context.iter().map(|name| ("default_context".to_owned(), name));
        for (key, name) in
            users.chain(default).filter(|(_, name)| !self.contexts.contains_key(*name))
        {
            problems.push((key, format!("there is no context `{name}` in policy.contexts")));
        }
        for (name, context) in &self.contexts {
            let paths = context.capabilities.iter().flat_map(|one| one.paths.iter().flatten());
            for path in paths.filter(|path| !path.starts_with('/') || path.contains("..")) {
                let why = format!("`{path}` is not an absolute path without `..`");
                problems.push((format!("contexts.{name}.capabilities"), why));
            }
        }
        problems
    }
}

/// Tools that every mode of a conversation has: how to leave it, where to read, whom to ask.
const COMMON_TOOLS: &str = "zaru.* ask_user";

/// Modes of a conversation: name, tools and what a model is told.
const CONVERSATION_MODES: [(&str, &str, &str); 5] = [
    (
        "chat",
        "",
        "You talk with a person. You answer from what you know and from hivekeep's documents \
         (zaru.docs). You run nothing. When the person wants something done, ask for another mode \
         with zaru.mode and say why.",
    ),
    (
        "agentic",
        "aegis.agent.generate aegis.agent.wait aegis.agent.list aegis.agent.logs \
         aegis.task.execute aegis.task.wait aegis.task.list aegis.task.logs aegis.task.cancel \
         aegis.execution.file aegis.tools.list aegis.tools.search",
        "You get tasks done by agents: find one that fits, or have one made, run it, wait for it, \
         read its log, and tell the person what came of it.",
    ),
    (
        "execute",
        "aegis.execute.intent aegis.execute.status aegis.execute.wait aegis.execution.file \
         aegis.workflow.wait",
        "You turn what the person wants into one run: say in a sentence what is to be done, start \
         it, wait for it, and hand over the result.",
    ),
    (
        "architect",
        "aegis.workflow.generate aegis.workflow.list aegis.workflow.logs aegis.workflow.wait \
         aegis.agent.generate aegis.agent.wait aegis.agent.list aegis.agent.logs aegis.schema.* \
         aegis.task.execute aegis.task.wait aegis.execution.file",
        "You design workflows and agents: write manifests, check them against their schemas, try \
         them, and show the person what they do.",
    ),
    (
        "operator",
        "*",
        "You operate this daemon for the person: every tool is yours. Look before you change, and \
         ask before you destroy.",
    ),
];

/// Modes of a conversation that there are without any configuration, by their names.
pub(crate) fn conversation_modes() -> BTreeMap<String, ConversationOptions> {
    let mode = |(name, tools, prompt): (&str, &str, &str)| {
        let all = tools.split_whitespace().chain(COMMON_TOOLS.split_whitespace());
        let tools = all.filter_map(|tool| ToolPattern::try_from(tool.to_owned()).ok());
        let options = ConversationOptions { tools: tools.collect(), prompt: prompt.to_owned() };
        (name.to_owned(), options)
    };
    CONVERSATION_MODES.into_iter().map(mode).collect()
}

impl ConversationOptions {
    /// True when the mode lets a session call nothing that another does not.
    pub(crate) fn within(&self, outer: &Self) -> bool {
        self.tools.iter().all(|tool| outer.tools.iter().any(|other| other.covers(tool)))
    }
}
