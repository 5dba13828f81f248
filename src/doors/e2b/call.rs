//! Calls of the dispatcher for a request of an SDK.

use std::time::Duration;

use hivekeep_kernel::{Door, Progress, ReceiptPad, ToolError, ports::Tools as _};
use hivekeep_registry::{ApprovalRoute, CallRequest};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    error::E2bError,
    state::{E2b, Owner},
};
use crate::codes;

/// Time that a call waits for its turn at most.
const IN_TURN: Duration = Duration::from_secs(60);
/// Pause where a refusal names none.
const RETRY_MS: u64 = 500;

impl E2b {
    /// Calls a tool; `args` is an object. Dropping the future cancels the call.
    ///
    /// # Errors
    /// Those of the dispatcher and of the tool.
    pub(super) async fn call(
        &self,
        owner: &Owner,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let Value::Object(args) = args else {
            return Err(ToolError::internal("the arguments of a call are no object"));
        };
        let request = CallRequest {
            session: owner.session,
            door: Door::E2b,
            tool: tool.to_owned(),
            args,
            progress: Progress::default(),
            cancel: CancellationToken::new(),
            timeout: None,
            view: owner.view.clone(),
            trace: None,
            approval: ApprovalRoute::default(),
        };
        let outcome = self.core.dispatcher.call(request).await;
        // What the answer delivers counts as delivered once it is handed to the connection.
        outcome.receipt.into_iter().for_each(ReceiptPad::sign);
        outcome.result
    }

    /// As [`Self::call`], with the parts of the result that are wanted.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        owner: &Owner,
        tool: &str,
        args: Value,
    ) -> Result<T, E2bError> {
        Ok(part_of(tool, self.call(owner, tool, args).await?)?)
    }

    /// As [`Self::call`], at the pace that the owner's rate allows: one of the calls of which a request makes as many as
    /// it has bytes.
    ///
    /// # Errors
    /// Those of the call; `rate_limited` after [`IN_TURN`].
    pub(super) async fn call_in_turn(
        &self,
        owner: &Owner,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let until = Instant::now() + IN_TURN;
        loop {
            match self.call(owner, tool, args.clone()).await {
                Err(error) if error.is(codes::RATE_LIMITED) && Instant::now() < until => {
                    sleep(Duration::from_millis(error.retry_after_ms.unwrap_or(RETRY_MS))).await;
                }
                told => return told,
            }
        }
    }

    /// Whether the policy lets an owner call a tool, and its credential is not revoked.
    pub(super) fn may(&self, owner: &Owner, tool: &str) -> bool {
        let tool = self.core.catalogue().find(tool).map(|entry| entry.spec);
        let may = |spec| self.core.dispatcher.may_call(owner.session, &owner.view, spec);
        self.live(owner.credential).is_some() && tool.is_some_and(may)
    }
}

/// The parts of a tool's result that are wanted.
pub(super) fn part_of<T: DeserializeOwned>(tool: &str, result: Value) -> Result<T, ToolError> {
    serde_json::from_value(result)
        .map_err(|error| ToolError::internal(format!("the result of {tool}: {error}")))
}
