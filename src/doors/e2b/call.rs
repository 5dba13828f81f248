//! Calls of the dispatcher for a request of an SDK.

use hivekeep_kernel::{Door, ToolError};
use hivekeep_ports::Tools as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    error::E2bError,
    state::{E2b, Owner},
};
use crate::doors::tool_calls::CallOrigin;

pub(super) use crate::doors::tool_calls::part_of;

impl E2b {
    /// See [`CallOrigin::call`].
    ///
    /// # Errors
    /// Those of the dispatcher and of the tool.
    pub(super) async fn call(
        &self,
        owner: &Owner,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        owner.origin().call(&self.core, tool, args).await
    }

    /// Like [`Self::call`], but returns the wanted parts of the result.
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

    /// See [`CallOrigin::call_in_turn`].
    ///
    /// # Errors
    /// Those of the call; `rate_limited` where its turn does not come.
    pub(super) async fn call_in_turn(
        &self,
        owner: &Owner,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        owner.origin().call_in_turn(&self.core, tool, args).await
    }

    /// Whether the policy lets an owner call a tool, and its credential is not revoked.
    pub(super) fn may(&self, owner: &Owner, tool: &str) -> bool {
        let tool = self.core.catalogue().find(tool).map(|entry| entry.spec);
        let may = |spec| self.core.dispatcher.may_call(owner.session, &owner.view, spec);
        self.live(owner.credential).is_some() && tool.is_some_and(may)
    }
}

impl Owner {
    fn origin(&self) -> CallOrigin {
        let (session, view) = (self.session, self.view.clone());
        CallOrigin { session, door: Door::E2b, view, caller: None }
    }
}
