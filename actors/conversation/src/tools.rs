//! Tool declarations of conversations.

use hivekeep_kernel::{ports::FormField, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::service::Conversation;

/// Longest time that a call waits for a person. Clients give calls up that are silent for long.
const MAX_WAIT_SECS: u64 = 3_600;

/// Ask a person, and wait for the reply. Use it when only a person can decide or knows. The question is
/// kept when nobody replies in time: ask the same again to go on waiting.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskUser {
    /// The question.
    #[schemars(length(min = 1, max = 4000))]
    pub(crate) question: String,
    /// Replies to choose from, 2 to 4; without them the reply is a text.
    #[schemars(length(min = 2, max = 4), inner(length(min = 1, max = 200)))]
    pub(crate) options: Option<Vec<String>>,
    /// True takes a text besides the options.
    #[serde(default)]
    pub(crate) allow_free_text: bool,
    /// What a text might say, shown where it is typed.
    #[schemars(length(max = 200))]
    pub(crate) free_text_placeholder: Option<String>,
    /// True lets the person choose several options.
    #[serde(default)]
    pub(crate) multi_select: bool,
    /// Several values to ask for at once, without `options`.
    #[serde(default)]
    #[schemars(length(max = 20))]
    pub(crate) fields: Vec<FormField>,
    /// How long to wait, in seconds; default 120.
    #[serde(default = "patience")]
    #[schemars(range(min = 1, max = MAX_WAIT_SECS))]
    pub(crate) timeout_secs: u64,
}

fn patience() -> u64 {
    120
}

/// What became of a question.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UserAsked {
    /// `answered`, `skipped` or `no_answer`.
    pub(crate) status: &'static str,
    /// Options that were chosen.
    pub(crate) selected: Vec<String>,
    /// Text that was typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// Values of the fields, by their names.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) values: Map<String, Value>,
    /// The same in a sentence.
    pub(crate) message: String,
    /// The question as it waits, where nobody replied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_id: Option<String>,
}

/// Begin a conversation: put this session into a mode, and learn what the mode is for and which tools it
/// has. Tools beyond the mode are refused from then on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ZaruInit {
    /// chat, agentic, execute, architect or operator, or a mode of the operator's.
    #[serde(default = "chat")]
    #[schemars(length(max = 64))]
    pub(crate) mode: String,
}

fn chat() -> String {
    "chat".to_owned()
}

/// A conversation as it begins.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConversationBegun {
    /// The mode.
    pub(crate) mode: String,
    /// What the mode is for, for the model.
    pub(crate) system_prompt: String,
    /// Tools that can be called now: names, or beginnings with `*`.
    pub(crate) available_tools: Vec<String>,
    /// Version of hivekeep.
    pub(crate) version: &'static str,
}

/// Switch the conversation to another mode, when the task cannot be done in this one. A person has to
/// approve a switch to more tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ZaruMode {
    /// The mode: chat, agentic, execute, architect or operator.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) target_mode: String,
    /// Why, for the person who is asked.
    #[schemars(length(min = 1, max = 1000))]
    pub(crate) reason: String,
}

/// A conversation that was switched.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConversationSwitched {
    /// `mode_switched`.
    pub(crate) action: &'static str,
    /// The mode that it is in now.
    pub(crate) target_mode: String,
    /// The reason that was given.
    pub(crate) reason: String,
    /// What the mode is for, for the model.
    pub(crate) system_prompt: String,
    /// Tools that can be called now: names, or beginnings with `*`.
    pub(crate) available_tools: Vec<String>,
}

/// Search hivekeep's own documents: how something is done, what a setting or an error means.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ZaruDocs {
    /// Words to look for.
    #[schemars(length(min = 1, max = 500))]
    pub(crate) query: String,
}

/// Sections that a query found.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DocsFound {
    /// The query.
    pub(crate) query: String,
    /// Sections, the best first; at most 5.
    pub(crate) sections: Vec<DocsSection>,
    /// Sections that have any of the words.
    pub(crate) total_matches: usize,
}

/// A section of a document.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct DocsSection {
    /// Title of the document and of the section.
    pub(crate) title: String,
    /// File that it stands in, among hivekeep's sources.
    pub(crate) source: &'static str,
    /// Beginning of the section, at most 2000 characters.
    pub(crate) content: String,
    /// Part of the query's words that the section has, from 0 to 1.
    pub(crate) score: f64,
}

tools! { pub(crate) FAMILY: "conversation" for service Conversation, singleton conversation;
    ask_user: AskUser => UserAsked = Conversation::ask_user {
        title: "Ask a person", effect: Idempotent, timeout_secs: MAX_WAIT_SECS,
    };
    zaru_init: ZaruInit => ConversationBegun = Conversation::init {
        name: "zaru.init", title: "Begin a conversation", effect: Idempotent,
    };
    zaru_mode: ZaruMode => ConversationSwitched = Conversation::switch {
        name: "zaru.mode", title: "Switch the conversation's mode", effect: Idempotent, timeout_secs: 700,
    };
    zaru_docs: ZaruDocs => DocsFound = Conversation::docs {
        name: "zaru.docs", title: "Search hivekeep's documents", effect: Read,
    };
}
