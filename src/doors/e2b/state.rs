//! State of the door, shared by its handlers.

use std::sync::Arc;

use hivekeep_kernel::{SessionId, SharedPool, ToolError, User};
use hivekeep_registry::ToolView;

use super::{
    filesystem::{Homes, Watchers},
    tokens::AccessTokens,
};
use crate::{
    config::E2bOptions,
    credentials::{CredentialRow, CredentialScope},
    doors::{
        DaemonServices,
        http::{body::BodyGate, caller::LastingSessions, hosts::AllowedHosts},
        proxy::Tunnels,
    },
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
    pub(super) credential: hivekeep_kernel::CredentialId,
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
            CredentialScope::Session | CredentialScope::ReadOnly => self.core.usual_view(),
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
            let works = row.scope != CredentialScope::ReadOnly;
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
}
