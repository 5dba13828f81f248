//! State of the door, shared by its handlers, and the calls that they make.

use std::sync::Arc;

use hivekeep_config::E2bOptions;
use hivekeep_door_server::{
    DaemonServices,
    credentials::{CredentialRow, CredentialScope},
    http::{body::BodyGate, caller::LastingSessions, hosts::AllowedHosts},
    proxy::Tunnels,
    tool_calls::{CallOrigin, part_of},
};
use hivekeep_kernel::{CredentialId, Door, SessionId, SharedPool, ToolError, User};
use hivekeep_ports::Tools as _;
use hivekeep_registry::ToolView;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    access::AccessTokens,
    error::E2bError,
    filesystem::{Homes, Watchers},
};

/// State of the handlers.
pub(super) struct E2b {
    pub(super) core: Arc<DaemonServices>,
    pub(super) options: E2bOptions,
    pub(super) hosts: AllowedHosts,
    pub(super) bodies: BodyGate,
    /// Requests at a time, streams included. Requests without a credential, as for public ports, have no
    /// user.
    pub(super) requests: SharedPool,
    /// A session for each credential.
    pub(super) lasting: LastingSessions,
    pub(super) tokens: AccessTokens,
    /// Domain that clients get.
    pub(super) domain: String,
    /// Upgraded connections to ports.
    pub(super) tunnels: Tunnels,
    pub(super) homes: Homes,
    pub(super) watchers: Watchers,
    /// A clone for each fork that is under way.
    pub(super) forking: Arc<()>,
}

/// The credential that a request is made with, and its session.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    pub(super) credential: CredentialId,
    pub(super) session: SessionId,
    pub(super) view: Arc<ToolView>,
}

impl E2b {
    /// The owner that a credential stands for, with its session open.
    ///
    /// # Errors
    /// Those of opening a session.
    pub(super) async fn owner(&self, row: &CredentialRow) -> Result<Owner, ToolError> {
        let client = || format!("E2B SDK ({})", row.name);
        let session = self.lasting.of(row.user(), client).await?;
        let view = match row.scope {
            CredentialScope::Operator => ToolView::operator(),
            _ => self.core.usual_view(),
        };
        Ok(Owner { credential: row.id, session, view: Arc::new(view) })
    }

    /// Holds the sessions of credentials that had some before the daemon was restarted: without a client they
    /// would end after a while, and their sandboxes would have no owner.
    pub(super) async fn hold_sessions(&self) -> Vec<Owner> {
        let mut owners = Vec::new();
        let users: Vec<Option<User>> =
            self.core.sessions.list().await.iter().map(|row| row.user).collect();
        for row in self.core.credentials.list() {
            let works = matches!(row.scope, CredentialScope::Operator | CredentialScope::Session);
            if !works || !users.contains(&Some(row.user())) {
                continue;
            }
            match self.owner(&row).await {
                Ok(owner) => owners.push(owner),
                Err(error) => {
                    tracing::warn!(%error, credential = row.name, "a session is not held");
                }
            }
        }
        owners
    }

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
    pub(super) fn origin(&self) -> CallOrigin {
        let (session, view) = (self.session, self.view.clone());
        CallOrigin { session, door: Door::E2b, view, caller: None }
    }
}
