//! Question to the person at a caller's client, and the reply.

use std::fmt;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    ApprovalId,
    form::{FormField, form_takes},
};

/// Question to a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserQuestion {
    /// The question.
    pub question: String,
    /// Answers to choose from; none asks for a text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// True if several of the options may be chosen.
    #[serde(default)]
    pub multi_select: bool,
    /// True if a text is an answer.
    #[serde(default)]
    pub free_text: bool,
    /// Placeholder of the text, shown where it is typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<String>,
    /// Values that it asks for instead of options and a text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FormField>,
    /// Name by which MCP clients that are asked in rounds know the form; `answer` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form_name: Option<String>,
}

/// A person's reply: options by their place from 0, a text, the values of fields, or none of them, which
/// skips the question.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserReply {
    /// Options that were chosen.
    #[serde(default)]
    pub selected: Vec<usize>,
    /// Text that was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Values of the question's fields.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Value>,
}

impl UserQuestion {
    /// Checks a reply against the question.
    ///
    /// # Errors
    /// Why it is none.
    pub fn takes(&self, reply: &UserReply) -> Result<(), String> {
        if !reply.values.is_empty() {
            return form_takes(&self.fields, &reply.values);
        }
        let options = self.options.len();
        if reply.selected.iter().any(|at| *at >= options) {
            return Err(format!("there are {options} options"));
        }
        if reply.selected.len() > 1 && !self.multi_select {
            return Err("only one option can be chosen".to_owned());
        }
        if reply.text.is_some() && !self.free_text {
            return Err("an option has to be chosen; a text is not an answer".to_owned());
        }
        Ok(())
    }
}

/// Person at the caller's own client, where the client can ask.
#[async_trait]
pub trait ClientPrompt: fmt::Debug + Send + Sync {
    /// Asks; `None` when the client cannot, nobody replied, or it [`repeats`](Self::repeats).
    async fn ask(&self, id: ApprovalId, question: &UserQuestion) -> Option<UserReply>;

    /// True for a client that is not asked while its call runs: it gets the question as the answer
    /// to the call and repeats the call with the reply. So the call has to end once it has asked.
    fn repeats(&self) -> bool {
        false
    }

    /// Notes an approval, or the reply to a question, that the call has used up: a client that
    /// [`repeats`](Self::repeats) the call is given it back for the next round.
    fn used(&self, _: ApprovalId) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_one_that_the_question_has_room_for() {
        let takes = |several: bool, free_text: bool, selected: &[usize], text: Option<&str>| {
            let options = vec!["a".to_owned(), "b".to_owned()];
            let question = UserQuestion {
                options,
                multi_select: several,
                free_text,
                ..UserQuestion::default()
            };
            let text = text.map(str::to_owned);
            question.takes(&UserReply { selected: selected.to_vec(), text, ..UserReply::default() })
        };
        assert_eq!(takes(false, false, &[], None), Ok(()), "skipped");
        assert_eq!(takes(false, false, &[1], None), Ok(()));
        assert!(takes(true, true, &[2], None).unwrap_err().contains("2 options"));
        assert_eq!(takes(true, false, &[0, 1], None), Ok(()));
        assert!(takes(false, true, &[0, 1], None).unwrap_err().contains("only one"));
        assert_eq!(takes(false, true, &[], Some("x")), Ok(()));
        assert!(takes(true, false, &[0], Some("x")).unwrap_err().contains("has to be chosen"));
    }

    #[test]
    fn values_are_those_of_the_fields() {
        let fields = vec![FormField::text("name")];
        let question = UserQuestion { fields, ..UserQuestion::default() };
        let takes = |name: &str| {
            let values = Map::from_iter([(name.to_owned(), Value::from("x"))]);
            question.takes(&UserReply { values, ..UserReply::default() })
        };
        assert_eq!(takes("name"), Ok(()));
        assert!(takes("other").is_err());
    }
}
