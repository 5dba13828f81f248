//! Elicitation: questions of the daemon to the person at an MCP client, as a form.
//!
//! A client with a handshake is asked while its call runs. One of 2026-07-28 gets the form as the answer
//! to its call, and repeats the call with what the person said (multi-round-trip); the state that it
//! brings back is the id of the approval or question, which is good for its own session only.

use std::{
    collections::BTreeMap,
    sync::{Mutex, OnceLock},
};

use async_trait::async_trait;
use hivekeep_door_server::{DaemonServices, codes};
use hivekeep_kernel::{ApprovalId, SessionId, ToolError, lock};
use hivekeep_policy::{Approval, ApprovalAnswer, ApprovalState, Remember};
use hivekeep_ports::{ClientPrompt, UserQuestion, UserReply, form_schema};
use hivekeep_registry::{CallOutcome, client_answer, client_question};
use rmcp::{
    RoleServer,
    model::{
        CallToolRequestParams, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
        InputRequest, InputRequiredResult, InputResponses, ProtocolVersion,
    },
    service::{ElicitationMode, Peer, RequestContext},
};
use serde_json::{Value, json};

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
pub(super) struct RoundPrompt {
    asked: OnceLock<(ApprovalId, UserQuestion)>,
    /// Replies that came with a call without a state, to questions that it had not asked yet.
    replies: Mutex<InputResponses>,
    /// Approvals that the call has used up, for its next round.
    used: Mutex<Vec<ApprovalId>>,
}

impl RoundPrompt {
    /// The person, with the replies that came ahead of the question. A reply to an earlier round is decided
    /// by the call's state alone.
    pub(super) fn of(request: &CallToolRequestParams) -> Self {
        let ahead = request.input_responses.as_ref().filter(|_| request.request_state.is_none());
        Self { replies: Mutex::new(ahead.cloned().unwrap_or_default()), ..Self::default() }
    }
}

#[async_trait]
impl ClientPrompt for RoundPrompt {
    async fn ask(&self, id: ApprovalId, question: &UserQuestion) -> Option<UserReply> {
        let ahead = lock(&self.replies).remove(key(question));
        let ahead = ahead.and_then(|reply| serde_json::from_value(reply).ok());
        if let Some(reply) = ahead.and_then(|result| reply(question, &result)) {
            return Some(reply);
        }
        // A call asks one question at a time: the next question is for the next round.
        let _first_stays = self.asked.set((id, question.clone()));
        None
    }

    fn repeats(&self) -> bool {
        true
    }

    fn used(&self, id: ApprovalId) {
        lock(&self.used).push(id);
    }
}

/// Round that a call of a client of 2026-07-28 is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RepeatedCall {
    /// The first round, or one without a valid answer.
    First,
    /// A person's answer, which was decided on.
    Answered,
    /// A form that a person closed.
    FormClosed,
}

/// Decides the approval or the question that a repeated call brings an answer to. A question that somebody
/// answered elsewhere meanwhile stays as it is.
///
/// # Errors
/// `approval_not_found` for a state of another session, and of an approval that is not given at clients;
/// `approval_denied`, when the person said no; `invalid_input` for a reply that does not fit.
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
    let question = found.question.clone().unwrap_or_else(|| client_question(&found));
    let result: Option<ElicitResult> = match request.input_responses.as_ref() {
        Some(replies) => {
            replies.get(key(&question)).and_then(|it| serde_json::from_value(it.clone()).ok())
        }
        None => None,
    };
    // Without an answer the question is asked again.
    let Some(result) = result else { return Ok(RepeatedCall::First) };
    if found.state != ApprovalState::Pending {
        return Ok(RepeatedCall::Answered);
    }
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

/// The form that answers a call which needs an approval or asked a question; none for other answers.
/// Approvals that the call has used up so far are there again for its next round.
pub(super) async fn required(
    core: &DaemonServices,
    outcome: &CallOutcome,
    round: &RoundPrompt,
) -> Option<InputRequiredResult> {
    let (id, question) = match (&outcome.result, round.asked.get()) {
        (Err(error), _) if error.is(codes::APPROVAL_REQUIRED) => {
            let id: ApprovalId = error.details.get("approval")?.as_str()?.parse().ok()?;
            (id, client_question(&core.dispatcher.policy().approvals().get(id)?))
        }
        (Ok(_), Some((id, question))) => (*id, question.clone()),
        _ => return None,
    };
    let request = InputRequest::Elicitation(ElicitRequest::new(form(&question)?));
    let used = std::mem::take(&mut *lock(&round.used));
    for earlier in used {
        if let Err(error) = core.dispatcher.policy().approvals().give_back(earlier).await {
            tracing::warn!(%error, id = %earlier, "an approval is used up though its call comes again");
        }
    }
    let requests = BTreeMap::from([(key(&question).to_owned(), request)]);
    Some(InputRequiredResult::new(Some(requests), Some(id.to_string())))
}

/// Key of a form without a name of its own, among those of one answer.
const FORM_KEY: &str = "answer";
const CHOICE_FIELD: &str = "choice";
const TEXT_FIELD: &str = "text";

/// Key of a question's form.
pub(super) fn key(question: &UserQuestion) -> &str {
    question.form_name.as_deref().unwrap_or(FORM_KEY)
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
        properties.insert(CHOICE_FIELD.to_owned(), choice);
    }
    if question.free_text {
        let about = question.placeholder.as_deref().unwrap_or("Your answer");
        properties.insert(
            TEXT_FIELD.to_owned(),
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
    let chosen = match content.get(CHOICE_FIELD) {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one.as_str()],
        _ => Vec::new(),
    };
    let place = |one: &str| question.options.iter().position(|option| option == one);
    let selected: Option<Vec<_>> = chosen.into_iter().map(place).collect();
    let text = content.get(TEXT_FIELD).and_then(Value::as_str).filter(|text| !text.is_empty());
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
