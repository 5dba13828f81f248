//! Calls of the dispatcher that a door makes for clients which ask for something else than a tool.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Door, Progress, ReceiptPad, SessionId, ToolError, User};
use hivekeep_registry::{ApprovalRoute, CallRequest, ToolView};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::DaemonServices;
use crate::codes;

/// Time that a call waits for its turn at most.
const IN_TURN: Duration = Duration::from_secs(60);
/// Pause where a refusal names none.
const RETRY_MS: u64 = 500;

/// Origin of calls.
pub struct CallOrigin {
    /// Session that calls.
    pub session: SessionId,
    /// Door that its client came by.
    pub door: Door,
    /// Tools that it is shown.
    pub view: Arc<ToolView>,
    /// User who calls, where that may be another than the session's.
    pub caller: Option<User>,
}

impl CallOrigin {
    /// Calls a tool; `args` is an object. Dropping the future cancels the call.
    ///
    /// # Errors
    /// Those of the dispatcher and of the tool.
    pub async fn call(
        &self,
        core: &DaemonServices,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let Value::Object(args) = args else {
            return Err(ToolError::internal("the arguments of a call are not an object"));
        };
        let request = CallRequest {
            session: self.session,
            door: self.door,
            tool: tool.to_owned(),
            args,
            progress: Progress::default(),
            cancel: CancellationToken::new(),
            timeout: None,
            view: self.view.clone(),
            trace: None,
            effect: None,
            approval: ApprovalRoute { caller: self.caller, ..ApprovalRoute::default() },
        };
        let outcome = core.dispatcher.call(request).await;
        // The receipt is signed once the answer is handed to the connection.
        outcome.receipt.into_iter().for_each(ReceiptPad::sign);
        outcome.result
    }

    /// Like [`Self::call`], at the pace that the session's rate allows: one of many calls for one request.
    ///
    /// # Errors
    /// Those of the call; `rate_limited` after [`IN_TURN`].
    pub async fn call_in_turn(
        &self,
        core: &DaemonServices,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let until = Instant::now() + IN_TURN;
        loop {
            match self.call(core, tool, args.clone()).await {
                Err(error) if error.is(codes::RATE_LIMITED) && Instant::now() < until => {
                    sleep(Duration::from_millis(error.retry_after_ms.unwrap_or(RETRY_MS))).await;
                }
                told => return told,
            }
        }
    }
}

/// The parts of a tool's result that are wanted.
pub fn part_of<T: DeserializeOwned>(tool: &str, result: Value) -> Result<T, ToolError> {
    serde_json::from_value(result)
        .map_err(|error| ToolError::internal(format!("the result of {tool}: {error}")))
}
