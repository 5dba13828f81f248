//! Approval: a grant, a token, or a person, where a layer of the policy asks for one.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{ApprovalId, Layer, Progress, ToolError, User};
use hivekeep_policy::{
    Approval, ApprovalAnswer, Question, ReasonCode, Remember, Verdict, WantedCall, input_digest,
    input_text,
};
use hivekeep_ports::{ClientPrompt, UserQuestion, UserReply};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{Inner, decide, decide::Asks, decide::notable};
use crate::{ToolEntry, codes};

/// The layer, in verdicts.
const LAYER: &str = "approval";
/// Interval of telling a client that its call still waits: clients give up on calls that are silent.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Way by which a call gets the approval that it may need.
#[derive(Debug, Clone, Default)]
pub struct ApprovalRoute {
    /// Token that the call brings.
    pub token: Option<String>,
    /// True waits for a person; false is told `approval_required` and repeats the call.
    pub waits: bool,
    /// The workspace that the caller says it is for; an approval is bound to it.
    pub workspace: Option<String>,
    /// The person at the client, if it can be asked.
    pub client: Option<Arc<dyn ClientPrompt>>,
    /// User who calls, where that may be another than the session's.
    pub caller: Option<User>,
}

impl ApprovalRoute {
    /// Route of a call that waits for a person.
    pub fn waiting() -> Self {
        Self { waits: true, ..Self::default() }
    }
}

/// Context of a call that waits for its approval.
pub(super) struct Patience<'a> {
    pub(super) route: &'a ApprovalRoute,
    pub(super) progress: &'a Progress,
    pub(super) cancel: &'a CancellationToken,
    /// Fires when the session is over.
    pub(super) over: &'a CancellationToken,
}

/// Lets a call through that gets its approval, and that the rules which hold then do not deny; by which
/// approval it did.
///
/// # Errors
/// `approval_required`, `approval_denied`, `approval_timed_out`, those of tokens, `cancelled`, `denied`.
pub(super) async fn require_approval(
    inner: &Inner,
    asks: Asks,
    entry: &ToolEntry,
    question: &Question<'_>,
    patience: Patience<'_>,
    verdicts: &mut Vec<Verdict>,
) -> Result<String, ToolError> {
    let call = wanted(inner, entry, question, patience.route);
    let client = patience.route.client.clone();
    let by = obtain(inner, &asks, call, patience).await;
    if let (Ok(by), Some(client)) = (&by, client)
        && let Ok(id) = by.parse()
    {
        client.used(id);
    }
    verdicts.push(match &by {
        Ok(by) => Verdict::allow(LAYER, "it was approved").by(by),
        Err(error) => Verdict::deny(LAYER, ReasonCode::ApprovalRequired, error.message.clone()),
    });
    let told =
        |error: ToolError| error.detail("policy", asks.layer).detail("verdicts", notable(verdicts));
    let by = by.map_err(told)?;
    let mut by_now = Vec::new();
    if let Err(error) = decide::authorize(inner, entry, question, &mut by_now) {
        *verdicts = by_now;
        return Err(error);
    }
    Ok(by)
}

/// Gives an approval back when the call that it let through ended by asking for another one.
pub(super) async fn asked_more(inner: &Inner, approved: Option<String>, error: &ToolError) {
    let id: Option<ApprovalId> = approved.and_then(|by| by.parse().ok());
    if let Some(id) = id.filter(|_| error.is(codes::APPROVAL_REQUIRED))
        && let Err(error) = inner.policy.approvals().give_back(id).await
    {
        tracing::warn!(%error, %id, "an approval is used up though its call asked for more");
    }
}

/// The verdict on a call that needs none.
pub(super) fn not_needed() -> Verdict {
    Verdict::allow(LAYER, "no approval is needed")
}

async fn obtain(
    inner: &Inner,
    asks: &Asks,
    call: WantedCall,
    patience: Patience<'_>,
) -> Result<String, ToolError> {
    let approvals = inner.policy.approvals();
    if let Some(by) = approvals.admit(&call, patience.route.token.as_deref()).await? {
        return Ok(by);
    }
    let (tool, waits) = (call.tool.clone(), patience.route.waits);
    let approval = approvals.ask(call, asks.why.clone(), waits).await?;
    if !waits {
        return Err(approval_required(&approval));
    }
    let id = approval.id.to_string();
    tokio::select! {
        biased;
        () = patience.cancel.cancelled() => Err(ToolError::cancelled()),
        () = patience.over.cancelled() => {
            let message = "the session ended while the call waited for an approval";
            Err(ToolError::new(Layer::Session, codes::SESSION_ENDED, message))
        }
        outcome = approvals.wait(&approval) => outcome.map(|()| id.clone()),
        never = ask_client(inner, &approval, patience.route) => never,
        never = tell(&tool, &id, patience.progress) => never,
    }
}

/// Passes the answer of the person at the client on to the approvals, which those who wait hear.
async fn ask_client<T>(inner: &Inner, approval: &Approval, route: &ApprovalRoute) -> T {
    let allowed = inner.policy.options().approvals.elicitation;
    if let Some(client) = route.client.as_ref().filter(|_| allowed)
        && let Some(reply) = client.ask(approval.id, &client_question(approval)).await
        && let Err(error) =
            inner.policy.approvals().decide_at_client(approval.id, client_answer(&reply)).await
    {
        tracing::info!(%error, approval = %approval.id, "the client's answer came to nothing");
    }
    std::future::pending().await
}

/// The refusal of a call that does not wait for its approval, and comes again.
pub fn approval_required(approval: &Approval) -> ToolError {
    let (id, tool) = (approval.id, &approval.call.tool);
    let message = format!("`{tool}` needs a person's approval: {}", approval.why);
    ToolError::new(Layer::Approval, codes::APPROVAL_REQUIRED, message)
        .next(format!(
            "have {id} approved (`hivekeep approvals approve {id}`), then repeat the same call"
        ))
        .detail("approval", id.to_string())
        .detail("input_digest", approval.call.input_digest.clone())
        .detail("expires_at", approval.expires_at.to_rfc3339())
}

/// The approval as a question, with the answers that [`client_answer`] reads.
pub fn client_question(approval: &Approval) -> UserQuestion {
    let call = &approval.call;
    UserQuestion {
        question: format!(
            "Allow `{}`? {}\n{}",
            call.tool,
            approval.why,
            approval.input_beginning()
        ),
        options: ["Allow once", "Allow for this session", "Deny"].map(str::to_owned).into(),
        ..UserQuestion::default()
    }
}

/// The answer of a reply to [`client_question`]; a reply that chooses nothing denies.
pub fn client_answer(reply: &UserReply) -> ApprovalAnswer {
    let (approved, remember) = match reply.selected.first() {
        Some(0) => (true, Remember::Once),
        Some(1) => (true, Remember::Session),
        _ => (false, Remember::Once),
    };
    ApprovalAnswer { approved, why: None, remember, reply: None }
}

async fn tell<T>(tool: &str, id: &str, progress: &Progress) -> T {
    let mut told = 0.0;
    loop {
        progress.report(
            told,
            None,
            format!("`{tool}` waits for a person's approval: {id} in `hivekeep approvals`"),
        );
        told += 1.0;
        tokio::time::sleep(TELL_EVERY).await;
    }
}

/// The call as an approval is bound to it.
pub(super) fn wanted(
    inner: &Inner,
    entry: &ToolEntry,
    question: &Question<'_>,
    route: &ApprovalRoute,
) -> WantedCall {
    let none = Map::new();
    let args = question.args.and_then(Value::as_object).unwrap_or(&none);
    let (input, input_chars) = input_text(&inner.redactor.input(args));
    WantedCall {
        tool: entry.name().to_owned(),
        session: question.session,
        user: route.caller.unwrap_or(question.user),
        door: question.door,
        agent: question.profile.agent.clone(),
        workspace: route.workspace.clone(),
        input_digest: input_digest(args),
        input,
        input_chars,
    }
}
