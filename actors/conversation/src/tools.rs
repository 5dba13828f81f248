//! Tools of conversations, and their service, which translates between them and the people behind the
//! port.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Layer, Service, ServiceActor, ToolError, ToolGroup, tools};
use hivekeep_ports::{ConversationMode, FormField, People, UserOutcome, UserQuestion, UserReply};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    codes,
    pages::{self, DocsSection},
};

type Answer<T> = Result<T, ToolError>;

/// Another name of a mode, by which an earlier version of the tools knew it.
const RENAMED: [(&str, &str); 1] = [("workflow", "architect")];
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
    /// Placeholder of the text, shown where it is typed.
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

/// Outcome of a question.
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
    /// Prompt of the mode: what it is for, for the model.
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
    /// Prompt of the mode: what it is for, for the model.
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

pub(crate) struct Conversation {
    people: Arc<dyn People>,
}

impl Service for Conversation {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[&FAMILY];
}

impl Conversation {
    pub(crate) fn new(people: Arc<dyn People>) -> Self {
        Self { people }
    }

    pub(crate) async fn ask_user(self: Arc<Self>, cx: CallCx, input: AskUser) -> Answer<UserAsked> {
        let options = input.options.unwrap_or_default();
        let simple = input.allow_free_text || input.multi_select || !options.is_empty();
        if !input.fields.is_empty() && simple {
            return Err(ToolError::invalid(
                "`fields` cannot be asked for beside options or a text",
            ));
        }
        check_fields(&input.fields).map_err(ToolError::invalid)?;
        let question = UserQuestion {
            question: input.question,
            // Without options only a text can be an answer.
            free_text: input.allow_free_text || (options.is_empty() && input.fields.is_empty()),
            fields: input.fields,
            form_name: None,
            multi_select: input.multi_select,
            placeholder: input.free_text_placeholder,
            options: options.clone(),
        };
        let limit = Duration::from_secs(input.timeout_secs);
        Ok(match cx.guard(self.people.ask(&cx, question, limit)).await? {
            UserOutcome::Replied(reply) => replied(&options, reply),
            UserOutcome::Unanswered(id) => UserAsked {
                status: "no_answer",
                selected: Vec::new(),
                text: None,
                values: Map::new(),
                message: format!(
                    "nobody replied within {} s; the question goes on waiting, ask the same again",
                    input.timeout_secs
                ),
                prompt_id: Some(id.to_string()),
            },
        })
    }

    pub(crate) async fn init(
        self: Arc<Self>,
        cx: CallCx,
        input: ZaruInit,
    ) -> Answer<ConversationBegun> {
        let mode = self.mode(&input.mode)?;
        self.people.converse(&cx, &mode.name, "the conversation begins").await?;
        Ok(ConversationBegun {
            mode: mode.name,
            system_prompt: mode.prompt,
            available_tools: mode.tools,
            version: env!("CARGO_PKG_VERSION"),
        })
    }

    async fn switch(self: Arc<Self>, cx: CallCx, input: ZaruMode) -> Answer<ConversationSwitched> {
        let mode = self.mode(&input.target_mode)?;
        self.people.converse(&cx, &mode.name, &input.reason).await?;
        Ok(ConversationSwitched {
            action: "mode_switched",
            target_mode: mode.name,
            reason: input.reason,
            system_prompt: mode.prompt,
            available_tools: mode.tools,
        })
    }

    async fn docs(self: Arc<Self>, _: CallCx, input: ZaruDocs) -> Answer<DocsFound> {
        let (sections, total_matches) = pages::search(&input.query);
        Ok(DocsFound { query: input.query, sections, total_matches })
    }

    fn mode(&self, wanted: &str) -> Answer<ConversationMode> {
        let renamed = RENAMED.iter().find(|(before, _)| *before == wanted);
        let name = renamed.map_or(wanted, |(_, now)| now);
        let modes = self.people.conversations();
        let names: Vec<_> = modes.iter().map(|mode| mode.name.clone()).collect();
        modes.into_iter().find(|mode| mode.name == name).ok_or_else(|| {
            ToolError::not_found(Layer::Actor, codes::UNKNOWN_MODE, "mode", wanted)
                .next(format!("use one of: {}", names.join(", ")))
                .detail("modes", names)
        })
    }
}

fn replied(options: &[String], reply: UserReply) -> UserAsked {
    let chosen = reply.selected.iter().filter_map(|at| options.get(*at).cloned());
    let selected: Vec<_> = chosen.collect();
    let said = [
        (!selected.is_empty()).then(|| format!("The user selected: {}", selected.join(", "))),
        reply.text.as_ref().map(|text| format!("The user responded: {text}")),
        (!reply.values.is_empty())
            .then(|| format!("The user filled in: {}", Value::from(reply.values.clone()))),
    ];
    let said: Vec<_> = said.into_iter().flatten().collect();
    let (status, message) = match said.is_empty() {
        true => ("skipped", "The user skipped the question".to_owned()),
        false => ("answered", said.join(". ")),
    };
    UserAsked { status, selected, text: reply.text, values: reply.values, message, prompt_id: None }
}

fn check_fields(fields: &[FormField]) -> Result<(), String> {
    for (at, field) in fields.iter().enumerate() {
        field.check()?;
        if fields[..at].iter().any(|earlier| earlier.name == field.name) {
            return Err(format!("there are two fields `{}`", field.name));
        }
    }
    Ok(())
}
