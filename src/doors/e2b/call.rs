//! Calls of the dispatcher for a request of an SDK.

use hivekeep_kernel::{Door, Progress, ReceiptPad, ToolError};
use hivekeep_registry::{ApprovalRoute, CallRequest};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    error::E2bError,
    state::{E2b, Owner},
};

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
        let result = self.call(owner, tool, args).await?;
        serde_json::from_value(result)
            .map_err(|error| ToolError::internal(format!("the result of {tool}: {error}")).into())
    }
}
