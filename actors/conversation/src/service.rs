//! Service of conversations: translates between tools and the people behind the port.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{
    CallCx, Layer, Service, ServiceActor, ToolError, ToolGroup,
    ports::{ConversationMode, FormField, People, UserOutcome, UserQuestion, UserReply},
};
use serde_json::{Map, Value};

use crate::{
    codes, pages,
    tools::{
        self, AskUser, ConversationBegun, ConversationSwitched, DocsFound, UserAsked, ZaruDocs,
        ZaruInit, ZaruMode,
    },
};

type Answer<T> = Result<T, ToolError>;

/// Another name of a mode, by which an earlier version of the tools knew it.
const RENAMED: [(&str, &str); 1] = [("workflow", "architect")];

pub(crate) struct Conversation {
    people: Arc<dyn People>,
}

impl Service for Conversation {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[&tools::FAMILY];
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

    pub(crate) async fn switch(
        self: Arc<Self>,
        cx: CallCx,
        input: ZaruMode,
    ) -> Answer<ConversationSwitched> {
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

    pub(crate) async fn docs(self: Arc<Self>, _: CallCx, input: ZaruDocs) -> Answer<DocsFound> {
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
