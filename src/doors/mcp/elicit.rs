//! Elicitation: questions of the daemon to the person at an MCP client, as a form.
//!
//! A client with a handshake is asked while its call runs. One of 2026-07-28 gets the form as the answer
//! to its call, and repeats the call with what the person said (multi-round-trip); the state that it
//! brings back is the id of the approval or question, which is good for its own session only.

use std::{collections::BTreeMap, sync::OnceLock};

use async_trait::async_trait;
use hivekeep_kernel::{
    ApprovalId, SessionId, ToolError,
    ports::{ClientPrompt, UserQuestion, UserReply},
};
use hivekeep_policy::{Approval, ApprovalAnswer, ApprovalState, Remember};
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
const FORM: &str = "answer";
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
    async fn ask(&self, _: ApprovalId, question: &UserQuestion) -> Option<UserReply> {
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

/// Person at a client of 2026-07-28: the question is noted, and is the answer to the call.
#[derive(Debug, Default)]
pub(super) struct RoundPrompt(OnceLock<(ApprovalId, UserQuestion)>);

#[async_trait]
impl ClientPrompt for RoundPrompt {
    async fn ask(&self, id: ApprovalId, question: &UserQuestion) -> Option<UserReply> {
        // One call asks one question at a time: what it asks next is for its next round.
        let _first_stays = self.0.set((id, question.clone()));
        None
    }

    fn repeats(&self) -> bool {
        true
    }
}

/// What a call of a client of 2026-07-28 brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RepeatedCall {
    /// It is the first of its kind.
    First,
    /// A person's answer, which was decided on.
    Answered,
    /// A form that a person closed.
    FormClosed,
}

/// Decides the approval or the question that a repeated call brings an answer to. One that somebody
/// answered elsewhere meanwhile stays as it is.
///
/// # Errors
/// `approval_not_found` for a state of another session, and of an approval that is not given at clients; `approval_denied`, when the person said no;
/// `invalid_input` for a reply that does not fit.
pub(super) async fn repeated(
    core: &DaemonServices,
    session: SessionId,
    request: &CallToolRequestParams,
) -> Result<RepeatedCall, ToolError> {
    let Some(state) = &request.request_state else { return Ok(RepeatedCall::First) };
    let approvals = core.dispatcher.policy().approvals();
    let id: Option<ApprovalId> = state.parse().ok();
    let found = id.and_then(|id| approvals.get(id));
    // Without the operator's leave the person at the client replies to questions and approves nothing.
    let approves = core.config.policy.approvals.elicitation;
    let own =
        |found: &Approval| found.call.session == session && (approves || found.question.is_some());
    let found = found.filter(own).ok_or_else(|| {
        ToolError::new(
            hivekeep_kernel::Layer::Approval,
            codes::APPROVAL_NOT_FOUND,
            "the state is not one that this session was given",
        )
    })?;
    let result: Option<ElicitResult> = match request.input_responses.as_ref() {
        Some(replies) => replies.get(FORM).and_then(|it| serde_json::from_value(it.clone()).ok()),
        None => None,
    };
    // Without an answer it is asked again.
    let Some(result) = result else { return Ok(RepeatedCall::First) };
    if found.state != ApprovalState::Pending {
        return Ok(RepeatedCall::Answered);
    }
    let question = found.question.clone().unwrap_or_else(|| client_question(&found));
    let Some(reply) = reply(&question, &result) else {
        return match result.action {
            ElicitationAction::Accept => Ok(RepeatedCall::First),
            _ => Ok(RepeatedCall::FormClosed),
        };
    };
    let answer = match &found.question {
        Some(_) => ApprovalAnswer {
            approved: true,
            why: None,
            remember: Remember::Once,
            reply: Some(reply),
        },
        None => client_answer(&reply),
    };
    let decided = approvals.decide_at_client(found.id, answer).await?;
    match decided.state {
        ApprovalState::Denied => Err(ToolError::new(
            hivekeep_kernel::Layer::Approval,
            codes::APPROVAL_DENIED,
            "the person at the client denied the call",
        )),
        _ => Ok(RepeatedCall::Answered),
    }
}

/// The form that a call is answered with which needs an approval or asked a question; none for other
/// answers.
pub(super) fn required(
    core: &DaemonServices,
    outcome: &CallOutcome,
    round: &RoundPrompt,
) -> Option<InputRequiredResult> {
    let (id, question) = match (&outcome.result, round.0.get()) {
        (Err(error), _) if error.is(codes::APPROVAL_REQUIRED) => {
            let id: ApprovalId = error.details.get("approval")?.as_str()?.parse().ok()?;
            (id, client_question(&core.dispatcher.policy().approvals().get(id)?))
        }
        (Ok(_), Some((id, question))) => (*id, question.clone()),
        _ => return None,
    };
    let request = InputRequest::Elicitation(ElicitRequest::new(form(&question)?));
    let requests = BTreeMap::from([(FORM.to_owned(), request)]);
    Some(InputRequiredResult::new(Some(requests), Some(id.to_string())))
}

/// A question as a form: a choice, a text, or both.
pub(super) fn form(question: &UserQuestion) -> Option<ElicitRequestParams> {
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
pub(super) fn reply(question: &UserQuestion, result: &ElicitResult) -> Option<UserReply> {
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
