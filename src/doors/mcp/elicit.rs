//! Elicitation: questions of the daemon to the person at an MCP client, as a form.
//!
//! A client with a handshake is asked while its call runs. One of 2026-07-28 gets the form as the answer
//! to its call, and repeats the call with what the person said (multi-round-trip); the state that it
//! brings back is the approval's id, which is good for its own session only.

use std::collections::BTreeMap;

use async_trait::async_trait;
use hivekeep_kernel::{
    ApprovalId, SessionId, ToolError,
    ports::{ClientPrompt, UserQuestion, UserReply},
};
use hivekeep_registry::{CallOutcome, client_answer, client_question};
use rmcp::{
    RoleServer,
    model::{
        CallToolRequestParams, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
        InputRequest, InputRequiredResult, ProtocolVersion,
    },
    service::{ElicitationMode, Peer, RequestContext},
};
use serde_json::{Value, json};

use crate::{codes, doors::DaemonServices};

/// Key of the form among those of one answer.
const FORM: &str = "approval";
const CHOICE: &str = "choice";
const TEXT: &str = "text";

/// Person at a client that answers requests of the server.
#[derive(Debug)]
pub(super) struct PeerPrompt(Peer<RoleServer>);

impl PeerPrompt {
    /// The person, where the client said in its handshake that it can ask.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        let asks = context.peer.supported_elicitation_modes().contains(&ElicitationMode::Form);
        (asks && !in_rounds(context)).then(|| Self(context.peer.clone()))
    }
}

#[async_trait]
impl ClientPrompt for PeerPrompt {
    async fn ask(&self, question: &UserQuestion) -> Option<UserReply> {
        match self.0.create_elicitation(form(question)?).await {
            Ok(result) => reply(question, &result),
            Err(error) => {
                tracing::info!(%error, "the client did not ask");
                None
            }
        }
    }
}

/// True for a client of 2026-07-28 that can ask: it is not asked while its call runs.
pub(super) fn in_rounds(context: &RequestContext<RoleServer>) -> bool {
    let modern = context.protocol_version().is_some_and(|it| it >= ProtocolVersion::V_2026_07_28);
    let asks = context.client_capabilities().is_some_and(|it| it.elicitation.is_some());
    modern && asks
}

/// Decides the approval that a repeated call brings an answer to.
///
/// # Errors
/// `approval_not_found` for a state of another session; `approval_denied`, when the person said no.
pub(super) async fn answered(
    core: &DaemonServices,
    session: SessionId,
    request: &CallToolRequestParams,
) -> Result<(), ToolError> {
    let (Some(state), Some(replies)) = (&request.request_state, &request.input_responses) else {
        return Ok(());
    };
    let approvals = core.dispatcher.policy().approvals();
    let id: Option<ApprovalId> = state.parse().ok();
    let found = id.and_then(|id| approvals.get(id));
    let found = found.filter(|found| found.call.session == session).ok_or_else(|| {
        ToolError::new(
            hivekeep_kernel::Layer::Approval,
            codes::APPROVAL_NOT_FOUND,
            "the state is not of this session",
        )
    })?;
    let question = client_question(&found);
    let result: Option<ElicitResult> =
        replies.get(FORM).and_then(|value| serde_json::from_value(value.clone()).ok());
    let Some(reply) = result.as_ref().and_then(|result| reply(&question, result)) else {
        return Ok(());
    };
    let decided = approvals.decide_at_client(found.id, client_answer(&reply)).await?;
    match decided.state {
        hivekeep_policy::ApprovalState::Denied => Err(ToolError::new(
            hivekeep_kernel::Layer::Approval,
            codes::APPROVAL_DENIED,
            "the person at the client denied the call",
        )),
        _ => Ok(()),
    }
}

/// The form that a call is answered with which needs an approval; none for other answers.
pub(super) fn required(
    core: &DaemonServices,
    outcome: &CallOutcome,
) -> Option<InputRequiredResult> {
    let error = outcome.result.as_ref().err()?;
    let id: ApprovalId = error.details.get("approval")?.as_str()?.parse().ok()?;
    if !error.is(codes::APPROVAL_REQUIRED) {
        return None;
    }
    let approval = core.dispatcher.policy().approvals().get(id)?;
    let request = InputRequest::Elicitation(ElicitRequest::new(form(&client_question(&approval))?));
    let requests = BTreeMap::from([(FORM.to_owned(), request)]);
    Some(InputRequiredResult::new(Some(requests), Some(id.to_string())))
}

/// A question as a form: a choice, a text, or both.
fn form(question: &UserQuestion) -> Option<ElicitRequestParams> {
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
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    let params = json!({ "mode": "form", "message": question.question, "requestedSchema": schema });
    serde_json::from_value(params)
        .inspect_err(|error| tracing::error!(%error, "a question is not a form"))
        .ok()
}

/// A person's reply; none of one who closed the form. A form that was declined chooses nothing.
fn reply(question: &UserQuestion, result: &ElicitResult) -> Option<UserReply> {
    let content = match result.action {
        ElicitationAction::Accept => result.content.as_ref()?,
        ElicitationAction::Decline => return Some(UserReply::default()),
        _ => return None,
    };
    let chosen = match content.get(CHOICE) {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one.as_str()],
        _ => Vec::new(),
    };
    let place = |one: &str| question.options.iter().position(|option| option == one);
    let selected: Option<Vec<_>> = chosen.into_iter().map(place).collect();
    let text = content.get(TEXT).and_then(Value::as_str).filter(|text| !text.is_empty());
    let reply = UserReply { selected: selected?, text: text.map(str::to_owned) };
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
            placeholder: None,
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
            Some(UserReply { selected: selected.to_vec(), text: text.map(str::to_owned) })
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
