//! Authentication of requests: a key on the control plane, a token or a signature on the data plane. It takes the head
//! of a request, and nothing of its sandbox's owner: whoever shows nothing that holds costs nobody a call.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
use hivekeep_kernel::{CredentialId, SessionId, ToolError, User};
use hivekeep_ports::{FoundWorkspace, WorkspaceFiles};

use super::{
    error::{E2bError, Kind},
    state::{E2b, Owner},
    target::Target,
    tokens::{self, TokenKind},
};
use crate::credentials::{CredentialRow, CredentialScope};

/// Beginning of a key, in place of that of a credential.
const KEY_PREFIX: &str = "e2b_";

pub(super) fn refused(why: &str) -> E2bError {
    E2bError::new(Kind::Unauthenticated, why)
}

/// The one value of a header.
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

fn may_work(row: &CredentialRow) -> Result<(), E2bError> {
    match row.scope {
        CredentialScope::ReadOnly => {
            let why = "a read-only credential is not a key of this door";
            Err(E2bError::new(Kind::PermissionDenied, why))
        }
        CredentialScope::Session | CredentialScope::Operator => Ok(()),
    }
}

impl E2b {
    /// Owner of the key that a request shows.
    ///
    /// # Errors
    /// Without one, or with one that is not valid.
    pub(super) async fn keyed(&self, headers: &HeaderMap) -> Result<Owner, E2bError> {
        let key = one(headers, "x-api-key").and_then(|key| key.strip_prefix(KEY_PREFIX));
        let none = "`X-API-KEY` should be `e2b_` and what stands behind `hivekeep_` in a credential; \
                    `hivekeep credential create` makes one";
        let key = key.ok_or_else(|| refused(none))?;
        let credential = format!("{}{key}", crate::credentials::PREFIX);
        let row = self.core.credentials.find(credential.as_bytes());
        let row = row.ok_or_else(|| refused("the key is not valid, or was revoked"))?;
        self.owner_of(&row).await
    }

    /// The credential of an id, while it is not revoked.
    pub(super) fn live(&self, id: CredentialId) -> Option<CredentialRow> {
        self.core.credentials.list().into_iter().find(|row| row.id == id)
    }

    /// The credential whose session this is.
    pub(super) fn credential_of(&self, session: SessionId) -> Option<CredentialRow> {
        match self.core.sessions.row(session)?.user? {
            User::Credential(id) => self.live(id),
            _ => None,
        }
    }

    /// Workspaces as they are known without a call.
    ///
    /// # Errors
    /// In a daemon without any.
    pub(super) fn directory(&self) -> Result<Arc<dyn WorkspaceFiles>, ToolError> {
        self.core.ports.need::<dyn WorkspaceFiles>()
    }

    /// The workspace that is a sandbox.
    ///
    /// # Errors
    /// For one that is gone.
    pub(super) fn workspace(&self, sandbox: &str) -> Result<FoundWorkspace, E2bError> {
        let found = self.directory()?.find(sandbox).filter(|found| found.name == sandbox);
        found.ok_or_else(|| E2bError::no_sandbox(sandbox))
    }

    /// The credential whose token of a sandbox this is, while it is not revoked.
    ///
    /// # Errors
    /// For a sandbox that is gone: of that there are no tokens any more, and whoever had one is told.
    pub(super) fn shown(
        &self,
        kind: TokenKind,
        token: &[u8],
        sandbox: &str,
    ) -> Result<Option<CredentialRow>, E2bError> {
        let Some(row) = tokens::named_by(token).and_then(|id| self.live(id)) else {
            return Ok(None);
        };
        let of = (row.id, self.workspace(sandbox)?.id);
        Ok(self.tokens.is(kind, of, token).then_some(row))
    }

    /// Owner of a sandbox whose token a request shows.
    pub(super) async fn bearer(
        &self,
        headers: &HeaderMap,
        sandbox: &str,
    ) -> Result<Owner, E2bError> {
        let token = one(headers, "x-access-token").map(str::as_bytes).unwrap_or_default();
        let row = self.shown(TokenKind::Access, token, sandbox)?;
        let row = row.ok_or_else(|| refused("`X-Access-Token` is not one of this sandbox"))?;
        self.owner_of(&row).await
    }

    /// Owner that a credential stands for at this door.
    pub(super) async fn owner_of(&self, row: &CredentialRow) -> Result<Owner, E2bError> {
        may_work(row)?;
        Ok(self.owner(row).await?)
    }

    /// The sandbox that a request asks about, whose token it shows.
    pub(super) async fn target(&self, parts: &Parts) -> Result<Target, E2bError> {
        let sandbox = self.sandbox_named(parts)?;
        let sandbox = sandbox.ok_or_else(|| E2bError::invalid("`E2b-Sandbox-Id` is missing"))?;
        let owner = self.bearer(&parts.headers, &sandbox.id).await?;
        Ok(Target { owner, id: sandbox.id, user: self.user_named(&parts.headers)? })
    }
}

/// Whoever was admitted by a key.
impl<S: Sync> FromRequestParts<S> for Owner {
    type Rejection = E2bError;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, E2bError> {
        // Where there is none, the route is open by mistake: nobody gets in.
        parts.extensions.get().cloned().ok_or_else(|| refused("no key was looked at"))
    }
}

/// Whoever was admitted by a token or a signature, with the sandbox that is asked about.
impl<S: Sync> FromRequestParts<S> for Target {
    type Rejection = E2bError;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, E2bError> {
        parts.extensions.get().cloned().ok_or_else(|| refused("no token was looked at"))
    }
}
