//! Prompts over MCP: offered to clients that are shown their tools, filled in with what is given, what a
//! person is asked for, and the documents that they name. What a person types for an argument, or for a variable of a
//! resource template, is completed by names that the client's session may see.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use hivekeep_door_server::prompts::{PromptTemplate, invalid};
use hivekeep_ports::UserQuestion;
use hivekeep_runtime::names::{KnownNames, Names};
use rmcp::{
    ErrorData, RoleServer,
    model::{
        ArgumentInfo, CompleteRequestParams, CompleteResult, CompletionInfo, ContentBlock,
        ElicitRequest, ElicitResult, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
        InputRequest, InputRequiredResult, JsonObject, PromptMessage, Reference, ResourceContents,
        Role,
    },
    service::RequestContext,
};
use serde_json::Value;
use tokio::time::Instant;

use super::{McpHandler, answer, elicit};

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
            match replies.get(elicit::key(&question)) {
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

/// Values that a person put into the form; empty where they closed it or left something out.
fn said(question: &UserQuestion, reply: &Value) -> JsonObject {
    let result: Option<ElicitResult> = serde_json::from_value(reply.clone()).ok();
    let reply = result.and_then(|result| elicit::reply(question, &result));
    reply.map(|reply| reply.values).unwrap_or_default()
}

fn required(question: &UserQuestion) -> Result<GetPromptResponse, ErrorData> {
    let form = elicit::form(question)
        .ok_or_else(|| ErrorData::internal_error("a question is not a form", None))?;
    let request = InputRequest::Elicitation(ElicitRequest::new(form));
    let requests = BTreeMap::from([(elicit::key(question).to_owned(), request)]);
    Ok(GetPromptResponse::InputRequired(InputRequiredResult::new(Some(requests), None)))
}

/// Kind of the names of tools, which every session has.
const TOOL_KIND: &str = "tool";
/// How long names are taken from the last look: a person types faster than names change, and each look
/// takes a token of the session's.
const NAMES_FRESH: Duration = Duration::from_secs(2);

/// The names that were looked up last.
pub(super) struct LastLook {
    kind: &'static str,
    at: Instant,
    names: Arc<KnownNames>,
}

/// Those that begin with what was typed, then those that have it elsewhere, in any case.
fn matching(known: &KnownNames, typed: &str) -> CompletionInfo {
    let typed = typed.to_lowercase();
    let found = |begins: bool| {
        let fits = |name: &&String| {
            let name = name.to_lowercase();
            name.contains(&typed) && name.starts_with(&typed) == begins
        };
        known.names.iter().filter(fits).cloned().collect::<BTreeSet<_>>()
    };
    let mut values: Vec<_> = found(true).into_iter().chain(found(false)).collect();
    let total = u32::try_from(values.len()).ok().filter(|_| known.complete);
    let has_more = values.len() > CompletionInfo::MAX_VALUES || !known.complete;
    values.truncate(CompletionInfo::MAX_VALUES);
    let mut info = CompletionInfo::default();
    (info.values, info.total, info.has_more) = (values, total, Some(has_more));
    info
}

impl McpHandler {
    pub(super) async fn completion(
        &self,
        request: CompleteRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let ArgumentInfo { name, value, .. } = request.argument;
        let kind = match request.r#ref {
            Reference::Prompt(prompt) => self.prompt(&prompt.name)?.parameter(&name)?.kind,
            Reference::Resource(resource) => self.variable(&resource.uri, &name)?,
            _ => return Err(ErrorData::invalid_params("unknown kind of reference", None)),
        };
        let known = match kind {
            Some(kind) => self.known(kind, context).await?,
            None => Arc::new(KnownNames { complete: true, ..KnownNames::default() }),
        };
        let mut result = CompleteResult::default();
        result.completion = matching(&known, &value);
        Ok(result)
    }

    /// Kind of the names that complete a variable of a template.
    fn variable(&self, template: &str, name: &str) -> Result<Option<&'static str>, ErrorData> {
        let offered = self.offered();
        let found = offered.iter().map(|documents| documents.template());
        let found = found.into_iter().find(|offered| offered.uri == template).ok_or_else(|| {
            ErrorData::invalid_params(format!("there is no template `{template:.200}`"), None)
        })?;
        let inside = found.uri.split('{').skip(1).filter_map(|part| part.split('}').next());
        let mut variables =
            inside.flat_map(|list| list.trim_start_matches(['+', '?', '&']).split(','));
        if !variables.any(|variable| variable == name) {
            let text = format!("`{}` has no variable `{name:.80}`", found.uri);
            return Err(ErrorData::invalid_params(text, None));
        }
        let own = found.variables.iter().find(|(variable, _)| *variable == name);
        Ok(own.map(|(_, kind)| *kind))
    }

    /// Names of a kind that the session may see; none where it is not shown the tool that lists them.
    async fn known(
        &self,
        kind: &'static str,
        context: &RequestContext<RoleServer>,
    ) -> Result<Arc<KnownNames>, ErrorData> {
        let (core, view) = (&self.0.core, &self.0.view);
        let catalogue = core.catalogue();
        if kind == TOOL_KIND {
            let names = catalogue.visible(view).map(|entry| view.name(entry.spec).into_owned());
            return Ok(Arc::new(KnownNames { names: names.collect(), complete: true }));
        }
        let is_shown = |source: &&Arc<dyn Names>| {
            let entry = catalogue.find(source.tool());
            source.kind() == kind && entry.is_some_and(|entry| view.shows(entry.spec))
        };
        let Some(source) = core.names.iter().find(is_shown) else {
            return Ok(Arc::new(KnownNames { complete: true, ..KnownNames::default() }));
        };
        if let Some(names) = self.last_look(kind) {
            return Ok(names);
        }
        let answer = self.call_for(source.tool(), source.args(), context).await?;
        let known = answer.and_then(|answer| source.known(answer)).map_err(answer::protocol)?;
        let names = Arc::new(known);
        let look = LastLook { kind, at: Instant::now(), names: names.clone() };
        self.0.looked.store(Some(Arc::new(look)));
        Ok(names)
    }

    fn last_look(&self, kind: &str) -> Option<Arc<KnownNames>> {
        let last = self.0.looked.load_full()?;
        let fresh = last.kind == kind && last.at.elapsed() < NAMES_FRESH;
        fresh.then(|| last.names.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(names: &[&str], complete: bool) -> KnownNames {
        KnownNames { names: names.iter().map(|name| (*name).to_owned()).collect(), complete }
    }

    #[test]
    fn what_begins_as_typed_comes_first_and_nothing_twice() {
        let known = known(&["my-dev", "Dev-2", "dev", "prod", "dev"], true);
        let found = matching(&known, "dev");
        assert_eq!(found.values, ["Dev-2", "dev", "my-dev"]);
        assert_eq!((found.total, found.has_more), (Some(3), Some(false)));
        assert_eq!(matching(&known, "").values.len(), 4);
        assert_eq!(matching(&known, "x").values, [""; 0]);
    }

    #[test]
    fn more_than_a_hundred_are_told_and_not_listed() {
        let names: Vec<_> = (0..150).map(|number| format!("ws-{number:03}")).collect();
        let mut known = KnownNames { names, complete: true };
        let found = matching(&known, "WS");
        assert_eq!((found.values.len(), found.total, found.has_more), (100, Some(150), Some(true)));
        known.complete = false;
        let found = matching(&known, "ws-00");
        assert_eq!((found.values.len(), found.total, found.has_more), (10, None, Some(true)));
    }
}
