//! A call of the dispatcher for a request.

use std::sync::Arc;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use chrono::Utc;
use hivekeep_kernel::{
    Door, Layer, Progress, ReceiptPad, SessionId, ToolError, ToolSpec, TraceContext,
};
use hivekeep_policy::input_digest;
use hivekeep_registry::{ApprovalRoute, CallOutcome, CallRequest};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        error::ApiError,
        idempotency::{BODY_BYTES, Begun, KeptOutcome, KeptRun},
        scope::CallScope,
        state::Api,
    },
    InvokeBody,
    answer::{Beside, CallNote, failure, success},
    large::LargeAnswer,
};
use crate::{
    codes,
    doors::{http::caller::HttpCaller, http_api::descriptor::tool_id, result_form::ResultForm},
};

/// A request that was carried out or refused, before it is decided what is kept of it.
struct MadeCall {
    answer: Result<Response, ApiError>,
    receipt: Option<ReceiptPad>,
    /// False when nothing was done.
    done: bool,
}

/// A call that may be made.
pub(in super::super) struct ToolRun {
    pub(in super::super) api: Arc<Api>,
    pub(in super::super) caller: HttpCaller,
    pub(in super::super) scope: CallScope,
    pub(in super::super) tool: &'static ToolSpec,
    pub(in super::super) input: Map<String, Value>,
    pub(in super::super) body: InvokeBody,
    /// Trace that the caller says the call belongs to.
    pub(in super::super) trace: Option<TraceContext>,
}

/// True for a refusal before the call reached its actor.
fn nothing_done(error: &ToolError) -> bool {
    let before = match error.layer {
        Layer::Resolve | Layer::Policy | Layer::Approval | Layer::Schema => true,
        Layer::Rate | Layer::Admission => true,
        // A session that ended may have done so while the call ran.
        Layer::Session => error.is(codes::SESSION_UNKNOWN),
        _ => false,
    };
    before || error.details.get("outcome").is_some_and(|outcome| outcome == "nothing_done")
}

impl ToolRun {
    /// Makes the call and answers with its outcome. Dropping this cancels the call.
    pub(super) async fn now(self) -> Result<Response, ApiError> {
        let MadeCall { answer, receipt, .. } = self.made().await;
        // The receipt is signed once the answer is handed to the connection: HTTP has no acknowledgement from
        // the client.
        receipt.into_iter().for_each(ReceiptPad::sign);
        answer
    }

    /// The request as its key stands for it: a token is no part of it.
    pub(super) fn begun(&self, key: String) -> Begun {
        let mut said = self.input.clone();
        let session = self.scope.session.map(|session| session.to_string());
        let beside = json!([session, self.scope.workspace, self.scope.agent()]);
        // A slash is in no name of a tool's field.
        said.insert("/scope".to_owned(), beside);
        let (user, tool) = (self.caller.user, tool_id(self.tool));
        Begun { user, key, tool, request: input_digest(&said), at: Utc::now() }
    }

    /// Makes the call, for an answer that is kept unless it is large.
    pub(super) async fn kept(self) -> KeptRun {
        let MadeCall { answer, receipt, done } = self.made().await;
        let (head, body) = answer.unwrap_or_else(IntoResponse::into_response).into_parts();
        // The body is in memory already.
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        let outcome = done.then(|| KeptOutcome::of(head.status, &body, BODY_BYTES));
        KeptRun { answer: Response::from_parts(head, Body::from(body)), outcome, receipt }
    }

    async fn made(self) -> MadeCall {
        let session = match self.session().await {
            Ok(session) => session,
            Err(error) => return MadeCall { answer: Err(error), receipt: None, done: false },
        };
        let mut outcome = self.call(session).await;
        let receipt = outcome.receipt.take();
        let beside = Beside::of(&mut outcome);
        let note = CallNote::new(&self, session, &outcome);
        let done = outcome.result.as_ref().err().is_none_or(|error| !nothing_done(error));
        let from_source = outcome.from_source;
        let large = outcome.result.as_ref().err().and_then(LargeAnswer::of);
        let answer = match (large, outcome.result) {
            (Some(large), Err(_)) => Ok(large.answer(note, beside, &self.body)),
            (_, Ok(result)) => {
                let json = result.to_string();
                let result = ResultForm::of(result, from_source, self.tool.content);
                Ok(success(note, result, json, beside, &self.body))
            }
            (None, Err(error)) => Err(failure(note, error, &tool_id(self.tool))),
        };
        MadeCall { answer, receipt, done }
    }

    /// The session of the call: the one that is named, or the caller's lasting one.
    async fn session(&self) -> Result<SessionId, ApiError> {
        let api = &self.api;
        match self.scope.session {
            Some(session) => {
                api.held.touch(session).await?;
                Ok(session)
            }
            None => {
                let client = || format!("HTTP API ({})", self.caller.name);
                Ok(api.lasting.of(self.caller.user, client).await?)
            }
        }
    }

    async fn call(&self, session: SessionId) -> CallOutcome {
        self.api
            .core
            .dispatcher
            .call(CallRequest {
                session,
                door: Door::HttpApi,
                tool: self.tool.name.to_owned(),
                args: self.input.clone(),
                progress: Progress::default(),
                cancel: CancellationToken::new(),
                timeout: None,
                view: self.scope.view.clone(),
                trace: self.trace.clone(),
                approval: ApprovalRoute {
                    token: self.body.approval_token.clone().filter(|token| !token.is_empty()),
                    workspace: self.scope.workspace.clone(),
                    caller: Some(self.caller.user),
                    ..ApprovalRoute::default()
                },
            })
            .await
    }
}
