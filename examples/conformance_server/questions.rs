//! The suite's tools that ask the person at the client, by way of the approvals like `ask_user`.

use std::time::Duration;

use hivekeep_kernel::{
    CallCx, Reply, ToolError, User,
    ports::{UserOutcome, UserQuestion},
    tools,
};
use hivekeep_policy::{WantedCall, input_digest};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Map;

use crate::fixtures::{Fixtures, Text};

/// How long a tool waits for a reply.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the person at the client with a message.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Elicitation {
    /// The message.
    pub message: String,
}

/// Asks for a name.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AskName {}

/// Asks for a confirmation.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AskConfirmation {}

/// Asks for a confirmation whose state is not to be forged.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AskUnforged {}

tools! { pub FAMILY: "questions" for Fixtures, singleton fixtures;
    test_elicitation: Elicitation => Text = Fixtures::on_test_elicitation {
        title: "Ask with a message", effect: Read,
    };
    test_input_required_result_elicitation: AskName => Text = Fixtures::on_ask_name {
        title: "Ask for a name", effect: Read,
    };
    test_input_required_result_request_state: AskConfirmation => Text = Fixtures::on_ask_confirmation {
        title: "Ask for a confirmation", effect: Read,
    };
    test_input_required_result_tampered_state: AskUnforged => Text = Fixtures::on_ask_unforged {
        title: "Ask for a confirmation, unforged", effect: Read,
    };
}

impl Fixtures {
    fn on_test_elicitation(
        &mut self,
        cx: &CallCx,
        input: Elicitation,
    ) -> Result<Reply<Text>, ToolError> {
        Ok(self.asked(cx, input.message))
    }

    fn on_ask_name(&mut self, cx: &CallCx, _: AskName) -> Result<Reply<Text>, ToolError> {
        Ok(self.asked(cx, "What is your name?".to_owned()))
    }

    fn on_ask_confirmation(
        &mut self,
        cx: &CallCx,
        _: AskConfirmation,
    ) -> Result<Reply<Text>, ToolError> {
        Ok(self.asked(cx, "Please confirm".to_owned()))
    }

    fn on_ask_unforged(&mut self, cx: &CallCx, _: AskUnforged) -> Result<Reply<Text>, ToolError> {
        Ok(self.asked(cx, "Please confirm, unforged".to_owned()))
    }

    /// Asks, and says what came of it. Nothing has to be chosen: the suite replies with fields of its
    /// own.
    fn asked(&self, cx: &CallCx, message: String) -> Reply<Text> {
        let question = UserQuestion {
            question: message,
            options: vec!["yes".to_owned(), "no".to_owned()],
            free_text: true,
            ..UserQuestion::default()
        };
        let call = WantedCall {
            tool: cx.tool.to_owned(),
            session: cx.session,
            user: User::Bearer,
            door: cx.door,
            agent: None,
            workspace: None,
            input_digest: input_digest(&Map::new()),
            input: question.question.clone(),
        };
        let (approvals, client) = (self.approvals.clone(), cx.client.clone());
        Reply::later(async move {
            let asked = approvals.ask_question(call, question, PATIENCE, client.as_deref());
            let text = match asked.await? {
                UserOutcome::Replied(reply) => format!("User response: {reply:?}"),
                UserOutcome::Unanswered(id) => format!("{id} waits"),
            };
            Ok(Text { text })
        })
    }
}
