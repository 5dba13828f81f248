//! Prompts over MCP: offered to clients that are shown their tools, filled in with what is given, what a
//! person is asked for, and the documents that they name.

mod templates;

use std::collections::BTreeMap;

use hivekeep_ports::{FormField, UserQuestion};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use rmcp::{
    ErrorData, RoleServer,
    model::{
        ContentBlock, ElicitRequest, ElicitResult, GetPromptRequestParams, GetPromptResponse,
        GetPromptResult, InputRequest, InputRequiredResult, JsonObject, PromptMessage,
        ResourceContents, Role,
    },
    service::RequestContext,
};
use serde_json::Value;

use super::{McpHandler, elicit, forms};
use templates::invalid;

pub use templates::{PROMPTS, PromptAttachment, PromptParameter, PromptTemplate};

/// Bytes that a parameter has escaped in a URI.
const ESCAPED: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');

impl McpHandler {
    /// Prompts whose tools the client is all shown.
    pub(super) fn prompts(&self) -> Vec<&'static PromptTemplate> {
        let catalogue = self.0.core.catalogue();
        let shown = |tool: &&'static str| {
            let entry = catalogue.find(tool);
            entry.is_some_and(|entry| self.0.view.shows(entry.spec))
        };
        self.0.core.prompts.iter().filter(|prompt| prompt.tools.iter().all(shown)).collect()
    }

    /// A prompt by its name.
    pub(super) fn prompt(&self, name: &str) -> Result<&'static PromptTemplate, ErrorData> {
        let found = self.prompts().into_iter().find(|prompt| prompt.name == name);
        found.ok_or_else(|| invalid(format!("there is no prompt `{name:.80}`")))
    }

    /// A prompt with its arguments. A person at a client of 2026-07-28 is asked for those that are missing.
    pub(super) async fn filled_prompt(
        &self,
        request: GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let prompt = self.prompt(&request.name)?;
        let mut arguments = request.arguments.unwrap_or_default();
        let asked = prompt.missing(&arguments).filter(|_| elicit::in_rounds(context));
        if let Some(question) = asked {
            let replies = request.input_responses.unwrap_or_default();
            match replies.get(forms::key(&question)) {
                Some(reply) => arguments.extend(said(&question, reply)),
                None => return required(&question),
            }
        }
        let filled = prompt.filled(&arguments)?;
        let mut messages = Vec::new();
        for attachment in prompt.attachments {
            if let Some(uri) = attachment.uri(&arguments) {
                let content = self.attached(uri, context).await?;
                messages.push(PromptMessage::new(Role::User, content));
            }
        }
        messages.push(PromptMessage::new_text(Role::User, filled));
        let result = GetPromptResult::new(messages).with_description(prompt.description);
        Ok(GetPromptResponse::Complete(result))
    }

    /// A document as a part of a prompt: an image as such, anything else as a resource.
    async fn attached(
        &self,
        uri: String,
        context: &RequestContext<RoleServer>,
    ) -> Result<ContentBlock, ErrorData> {
        let contents = self.read_document(uri, context).await?.contents.into_iter().next();
        Ok(match contents {
            Some(ResourceContents::BlobResourceContents {
                blob, mime_type: Some(kind), ..
            }) if kind.starts_with("image/") => ContentBlock::image(blob, kind),
            Some(contents) => ContentBlock::resource(contents),
            None => return Err(ErrorData::internal_error("a document without contents", None)),
        })
    }
}

impl PromptTemplate {
    /// A question for the arguments that are required and not given; none if none is.
    fn missing(&self, arguments: &JsonObject) -> Option<UserQuestion> {
        let given = |name: &str| {
            arguments.get(name).and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty())
        };
        let missing =
            self.parameters.iter().filter(|one| one.otherwise.is_none() && !given(one.name));
        let field = |one: &PromptParameter| FormField {
            description: Some(one.description.to_owned()),
            ..FormField::text(one.name)
        };
        let fields: Vec<_> = missing.map(field).collect();
        let question = format!("What “{}” needs", self.title);
        (!fields.is_empty()).then(|| UserQuestion { question, fields, ..UserQuestion::default() })
    }
}

impl PromptAttachment {
    /// URI of the document; none where its parameter is left out.
    fn uri(&self, arguments: &JsonObject) -> Option<String> {
        let Self { before, parameter } = self;
        let Some(parameter) = parameter else { return Some((*before).to_owned()) };
        let value = arguments.get(*parameter)?.as_str()?.trim();
        match (value.is_empty(), before.is_empty()) {
            (true, _) => None,
            (false, true) => Some(value.to_owned()),
            (false, false) => Some(format!("{before}{}", utf8_percent_encode(value, ESCAPED))),
        }
    }
}

/// Values that a person put into the form; empty where they closed it or left something out.
fn said(question: &UserQuestion, reply: &Value) -> JsonObject {
    let result: Option<ElicitResult> = serde_json::from_value(reply.clone()).ok();
    let reply = result.and_then(|result| forms::reply(question, &result));
    reply.map(|reply| reply.values).unwrap_or_default()
}

fn required(question: &UserQuestion) -> Result<GetPromptResponse, ErrorData> {
    let form = forms::form(question)
        .ok_or_else(|| ErrorData::internal_error("a question is not a form", None))?;
    let request = InputRequest::Elicitation(ElicitRequest::new(form));
    let requests = BTreeMap::from([(forms::key(question).to_owned(), request)]);
    Ok(GetPromptResponse::InputRequired(InputRequiredResult::new(Some(requests), None)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_attachment_is_named_by_its_parameter_or_left_out() {
        let note = PromptAttachment { before: "vault:///", parameter: Some("note") };
        let uri = |arguments: Value| note.uri(arguments.as_object().expect("an object"));
        assert_eq!(
            uri(json!({ "note": "a b/ü#.md" })),
            Some("vault:///a%20b/%C3%BC%23.md".to_owned())
        );
        assert_eq!(uri(json!({ "note": " " })), None);
        assert_eq!(uri(json!({})), None);
        let whole = PromptAttachment { before: "", parameter: Some("uri") };
        let arguments = JsonObject::from_iter([("uri".to_owned(), json!("a://b?c#d"))]);
        assert_eq!(whole.uri(&arguments), Some("a://b?c#d".to_owned()));
        let fixed = PromptAttachment { before: "a://b", parameter: None };
        assert_eq!(fixed.uri(&JsonObject::new()), Some("a://b".to_owned()));
    }
}
