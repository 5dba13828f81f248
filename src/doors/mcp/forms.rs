//! Forms of MCP's elicitation: a question as one, and what a person put into it.

use hivekeep_ports::{UserQuestion, UserReply, form_schema};
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use serde_json::{Value, json};

/// Key of a form without a name of its own, among those of one answer.
const FORM: &str = "answer";
const CHOICE: &str = "choice";
const TEXT: &str = "text";

/// Key of a question's form.
pub(super) fn key(question: &UserQuestion) -> &str {
    question.form_name.as_deref().unwrap_or(FORM)
}

/// A question as a form: its fields, or a choice, a text, or both.
pub(super) fn form(question: &UserQuestion) -> Option<ElicitRequestParams> {
    let schema = match question.fields.is_empty() {
        true => simple_schema(question),
        false => form_schema(&question.fields),
    };
    let params = json!({ "mode": "form", "message": question.question, "requestedSchema": schema });
    serde_json::from_value(params)
        .inspect_err(|error| tracing::error!(%error, "a question is not a form"))
        .ok()
}

fn simple_schema(question: &UserQuestion) -> Value {
    let mut properties = serde_json::Map::new();
    let options = &question.options;
    if !options.is_empty() {
        let choice = match question.multi_select {
            true => {
                json!({ "type": "array", "title": "Choose", "items": { "type": "string", "enum": options } })
            }
            false => json!({ "type": "string", "title": "Choose", "enum": options }),
        };
        properties.insert(CHOICE.to_owned(), choice);
    }
    if question.free_text {
        let about = question.placeholder.as_deref().unwrap_or("Your answer");
        properties.insert(
            TEXT.to_owned(),
            json!({ "type": "string", "title": "Answer", "description": about }),
        );
    }
    let required: Vec<_> = match question.free_text && !options.is_empty() {
        true => Vec::new(),
        false => properties.keys().cloned().collect(),
    };
    json!({ "type": "object", "properties": properties, "required": required })
}

/// A person's reply; none of one who closed the form. A form that was declined chooses nothing.
pub(super) fn reply(question: &UserQuestion, result: &ElicitResult) -> Option<UserReply> {
    let content = match result.action {
        ElicitationAction::Accept => result.content.as_ref()?,
        ElicitationAction::Decline => return Some(UserReply::default()),
        _ => return None,
    };
    if !question.fields.is_empty() {
        let reply = UserReply { values: content.as_object()?.clone(), ..UserReply::default() };
        return question.takes(&reply).is_ok().then_some(reply);
    }
    let chosen = match content.get(CHOICE) {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one.as_str()],
        _ => Vec::new(),
    };
    let place = |one: &str| question.options.iter().position(|option| option == one);
    let selected: Option<Vec<_>> = chosen.into_iter().map(place).collect();
    let text = content.get(TEXT).and_then(Value::as_str).filter(|text| !text.is_empty());
    let text = text.map(str::to_owned);
    let reply = UserReply { selected: selected?, text, ..UserReply::default() };
    question.takes(&reply).is_ok().then_some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(options: &[&str], free_text: bool, multi_select: bool) -> UserQuestion {
        UserQuestion {
            question: "Which?".to_owned(),
            options: options.iter().map(|one| (*one).to_owned()).collect(),
            free_text,
            multi_select,
            ..UserQuestion::default()
        }
    }

    #[test]
    fn every_question_is_a_form_and_only_its_replies_are_taken() {
        let accepted = |content: Value| {
            serde_json::from_value::<ElicitResult>(
                json!({ "action": "accept", "content": content }),
            )
            .expect("a result")
        };
        let said = |selected: &[usize], text: Option<&str>| {
            Some(UserReply {
                selected: selected.to_vec(),
                text: text.map(str::to_owned),
                ..UserReply::default()
            })
        };
        for (question, content, expected) in [
            (question(&["a", "b"], false, false), json!({ "choice": "b" }), said(&[1], None)),
            (
                question(&["a", "b"], false, true),
                json!({ "choice": ["b", "a"] }),
                said(&[1, 0], None),
            ),
            (question(&["a", "b"], true, false), json!({ "text": "x" }), said(&[], Some("x"))),
            (question(&[], true, false), json!({ "text": "x" }), said(&[], Some("x"))),
            (question(&["a", "b"], false, false), json!({ "choice": "c" }), None),
            (question(&["a", "b"], false, false), json!({ "choice": "a", "text": "x" }), None),
        ] {
            assert!(form(&question).is_some(), "{question:?}");
            assert_eq!(reply(&question, &accepted(content.clone())), expected, "{content}");
        }
        let declined = serde_json::from_value(json!({ "action": "decline" })).expect("a result");
        assert_eq!(reply(&question(&["a"], false, false), &declined), said(&[], None));
        let closed = serde_json::from_value(json!({ "action": "cancel" })).expect("a result");
        assert_eq!(reply(&question(&["a"], false, false), &closed), None);
    }
}
