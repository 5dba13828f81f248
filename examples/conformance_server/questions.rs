//! The suite's tools that ask the person at the client, by way of the approvals like `ask_user`.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Reply, ToolError, User, tools};
use hivekeep_policy::{WantedCall, input_digest};
use hivekeep_ports::{FieldKind, FieldOption, FormField, UserOutcome, UserQuestion};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

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

/// Asks for a name, and for a colour after it.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AskTwice {}

/// Asks for a value of each kind that begins with something.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AskDefaults {}

/// Asks for choices with and without titles.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AskChoices {}

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
    test_input_required_result_multi_round: AskTwice => Text = Fixtures::on_ask_twice {
        title: "Ask for a name, then for a colour", effect: Read,
    };
    test_elicitation_sep1034_defaults: AskDefaults => Text = Fixtures::on_ask_defaults {
        title: "Ask for values with defaults", effect: Read,
    };
    test_elicitation_sep1330_enums: AskChoices => Text = Fixtures::on_ask_choices {
        title: "Ask for choices", effect: Read,
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
        Ok(self.asked(cx, [yes_or_no(input.message)]))
    }

    fn on_ask_name(&mut self, cx: &CallCx, _: AskName) -> Result<Reply<Text>, ToolError> {
        Ok(self.asked(cx, [form("user_name", "What is your name?", vec![FormField::text("name")])]))
    }

    fn on_ask_twice(&mut self, cx: &CallCx, _: AskTwice) -> Result<Reply<Text>, ToolError> {
        let questions = [
            form("step1", "What is your name?", vec![FormField::text("name")]),
            form("step2", "What is your favorite color?", vec![FormField::text("color")]),
        ];
        Ok(self.asked(cx, questions))
    }

    fn on_ask_defaults(&mut self, cx: &CallCx, _: AskDefaults) -> Result<Reply<Text>, ToolError> {
        let field = |name, kind, default: Value| FormField {
            kind,
            default: Some(default),
            ..FormField::text(name)
        };
        let fields = vec![
            field("name", FieldKind::Text, json!("John Doe")),
            field("age", FieldKind::Integer, json!(30)),
            field("score", FieldKind::Number, json!(95.5)),
            FormField {
                options: options(&["active", "inactive", "pending"], false),
                ..field("status", FieldKind::Choice, json!("active"))
            },
            field("verified", FieldKind::Boolean, json!(true)),
        ];
        Ok(self.asked(cx, [form("answer", "Who is it?", fields)]))
    }

    fn on_ask_choices(&mut self, cx: &CallCx, _: AskChoices) -> Result<Reply<Text>, ToolError> {
        let field = |name, kind, values: &[&str], titled| FormField {
            kind,
            options: options(values, titled),
            optional: true,
            ..FormField::text(name)
        };
        let plain = ["option1", "option2", "option3"];
        let titled = ["value1", "value2", "value3"];
        let fields = vec![
            field("untitledSingle", FieldKind::Choice, &plain, false),
            field("titledSingle", FieldKind::Choice, &titled, true),
            field("legacyEnum", FieldKind::Choice, &["opt1", "opt2", "opt3"], false),
            field("untitledMulti", FieldKind::Choices, &plain, false),
            field("titledMulti", FieldKind::Choices, &titled, true),
        ];
        Ok(self.asked(cx, [form("answer", "What do you choose?", fields)]))
    }

    fn on_ask_confirmation(
        &mut self,
        cx: &CallCx,
        _: AskConfirmation,
    ) -> Result<Reply<Text>, ToolError> {
        Ok(self.asked(cx, [yes_or_no("Please confirm".to_owned())]))
    }

    fn on_ask_unforged(&mut self, cx: &CallCx, _: AskUnforged) -> Result<Reply<Text>, ToolError> {
        Ok(self.asked(cx, [yes_or_no("Please confirm, unforged".to_owned())]))
    }

    /// Asks one after the other, and says what came of it.
    fn asked<const N: usize>(&self, cx: &CallCx, questions: [UserQuestion; N]) -> Reply<Text> {
        let call = |question: &UserQuestion| WantedCall {
            tool: cx.tool.to_owned(),
            session: cx.session,
            user: User::Bearer,
            door: cx.door,
            agent: None,
            workspace: None,
            input_digest: input_digest(&Map::from_iter([("question".to_owned(), json!(question))])),
            input: question.question.clone(),
            input_chars: question.question.chars().count(),
        };
        let questions = questions.map(|question| (call(&question), question));
        let (approvals, client) = (self.approvals.clone(), cx.client.clone());
        Reply::later(async move {
            let mut text = "User response:".to_owned();
            for (call, question) in questions {
                let asked = approvals.ask_question(call, question, PATIENCE, client.as_deref());
                match asked.await? {
                    UserOutcome::Replied(reply) => text.push_str(&format!(" {reply:?}")),
                    UserOutcome::Unanswered(id) => return Ok(Text { text: format!("{id} waits") }),
                }
            }
            Ok(Text { text })
        })
    }
}

/// Nothing has to be chosen: the suite replies with fields of its own.
fn yes_or_no(message: String) -> UserQuestion {
    UserQuestion {
        question: message,
        options: vec!["yes".to_owned(), "no".to_owned()],
        free_text: true,
        ..UserQuestion::default()
    }
}

fn form(name: &str, message: &str, fields: Vec<FormField>) -> UserQuestion {
    UserQuestion {
        question: message.to_owned(),
        fields,
        form_name: Some(name.to_owned()),
        ..UserQuestion::default()
    }
}

fn options(values: &[&str], titled: bool) -> Vec<FieldOption> {
    let option = |value: &&str| FieldOption {
        value: (*value).to_owned(),
        title: titled.then(|| format!("The {value}")),
    };
    values.iter().map(option).collect()
}
