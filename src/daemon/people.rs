//! People behind the daemon's sessions: the port that families ask, over approvals and profiles.

use std::time::Duration;

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, SessionId, ToolError};
use hivekeep_policy::{PolicyEngine, WantedCall, input_digest, input_text};
use hivekeep_ports::{ConversationMode, People, UserOutcome, UserQuestion};
use hivekeep_registry::{SessionsHandle, approval_required, client_answer, client_question};
use serde_json::{Map, Value, json};

/// See the module.
pub(super) struct SessionPeople {
    pub(super) policy: PolicyEngine,
    pub(super) sessions: SessionsHandle,
}

impl SessionPeople {
    /// The call that a person is asked about, in the form that an approval is bound to.
    ///
    /// # Errors
    /// `session_unknown`, `session_ended`.
    fn wanted<const N: usize>(
        &self,
        cx: &CallCx,
        about: [(&str, Value); N],
    ) -> Result<WantedCall, ToolError> {
        let owner = self.sessions.owner(cx.session);
        let agent = self.sessions.profile(cx.session)?.agent;
        let user = cx.caller.or(owner);
        let user = user.ok_or_else(|| ToolError::internal("a session has no user"))?;
        let about = Map::from_iter(about.map(|(name, value)| (name.to_owned(), value)));
        let (input, input_chars) = input_text(&about);
        let about = Map::from_iter([("about".to_owned(), Value::Object(about))]);
        Ok(WantedCall {
            tool: cx.tool.to_owned(),
            session: cx.session,
            user,
            door: cx.door,
            agent,
            workspace: None,
            input_digest: input_digest(&about),
            input,
            input_chars,
        })
    }

    /// Has a person approve something beyond what the call itself was let through for.
    async fn approve(&self, cx: &CallCx, call: WantedCall, why: String) -> Result<(), ToolError> {
        let approvals = self.policy.approvals();
        if approvals.admit(&call, None).await?.is_some() {
            return Ok(());
        }
        let elicits = self.policy.options().approvals.elicitation;
        let client = cx.client.as_ref().filter(|_| elicits);
        let repeats = client.is_some_and(|client| client.repeats());
        let approval = approvals.ask(call, why, !repeats).await?;
        if repeats {
            return Err(approval_required(&approval));
        }
        let at_client = async {
            if let Some(client) = client
                && let Some(reply) = client.ask(approval.id, &client_question(&approval)).await
                && let Err(error) =
                    approvals.decide_at_client(approval.id, client_answer(&reply)).await
            {
                tracing::info!(%error, approval = %approval.id, "the client's answer came to nothing");
            }
            std::future::pending::<Result<(), ToolError>>().await
        };
        tokio::select! {
            biased;
            () = cx.cancel.cancelled() => Err(ToolError::cancelled()),
            outcome = approvals.wait(&approval) => outcome,
            never = at_client => never,
        }
    }
}

#[async_trait]
impl People for SessionPeople {
    async fn ask(
        &self,
        cx: &CallCx,
        question: UserQuestion,
        limit: Duration,
    ) -> Result<UserOutcome, ToolError> {
        let call = self.wanted(cx, [("question", json!(question))])?;
        let id = format!("`{}` waits for a person's reply in `hivekeep approvals`", cx.tool);
        cx.progress.report(0.0, None, id);
        self.policy.approvals().ask_question(call, question, limit, cx.client.as_deref()).await
    }

    fn conversation(&self, session: SessionId) -> Option<String> {
        self.sessions.profile(session).ok().and_then(|profile| profile.conversation)
    }

    fn conversations(&self) -> Vec<ConversationMode> {
        let modes = self.policy.options().conversations.iter();
        modes
            .map(|(name, mode)| ConversationMode {
                name: name.clone(),
                tools: mode.tools.iter().map(ToString::to_string).collect(),
                prompt: mode.prompt.clone(),
            })
            .collect()
    }

    async fn converse(&self, cx: &CallCx, mode: &str, reason: &str) -> Result<(), ToolError> {
        let before = self.conversation(cx.session);
        if self.policy.widens(before.as_deref(), mode) {
            let call = self.wanted(cx, [("from", json!(before)), ("to", json!(mode))])?;
            let why = format!(
                "the conversation is to go to the mode `{mode}`, which has more tools: {reason}"
            );
            self.approve(cx, call, why).await?;
        }
        let mode = mode.to_owned();
        self.sessions.bind(cx.session, |profile| profile.conversation = Some(mode)).await.map(drop)
    }
}
