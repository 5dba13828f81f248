//! Authentication of requests: a key on the control plane, an access token on the data plane.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
use hivekeep_kernel::{CredentialId, SessionId, User};

use super::{
    error::{E2bError, Kind},
    state::{E2b, Owner},
    target::Target,
};
use crate::credentials::{CredentialRow, CredentialScope};

/// Beginning of a key, in place of that of a credential.
const KEY_PREFIX: &str = "e2b_";

fn refused(why: &str) -> E2bError {
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
            let why = "a read-only credential is no key of this door";
            Err(E2bError::new(Kind::PermissionDenied, why))
        }
        CredentialScope::Session | CredentialScope::Operator => Ok(()),
    }
}

/// A caller of the control plane.
impl FromRequestParts<Arc<E2b>> for Owner {
    type Rejection = E2bError;
    async fn from_request_parts(parts: &mut Parts, e2b: &Arc<E2b>) -> Result<Self, E2bError> {
        let key = one(&parts.headers, "x-api-key").and_then(|key| key.strip_prefix(KEY_PREFIX));
        let none = "`X-API-KEY` should be `e2b_` and what stands behind `hivekeep_` in a credential; \
                    `hivekeep credential create` makes one";
        let key = key.ok_or_else(|| refused(none))?;
        let credential = format!("{}{key}", crate::credentials::PREFIX);
        let row = e2b.core.credentials.find(credential.as_bytes());
        let row = row.ok_or_else(|| refused("the key is not valid, or was revoked"))?;
        may_work(&row)?;
        Ok(e2b.owner(&row).await?)
    }
}

impl E2b {
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

    /// Owner of a sandbox whose token a request shows.
    pub(super) async fn bearer(
        &self,
        headers: &HeaderMap,
        sandbox: &str,
    ) -> Result<Owner, E2bError> {
        let token = one(headers, "x-access-token").map(str::as_bytes).unwrap_or_default();
        let known = self.tokens.credential(token, sandbox).and_then(|id| self.live(id));
        let row = known.ok_or_else(|| refused("`X-Access-Token` is not one of this sandbox"))?;
        may_work(&row)?;
        Ok(self.owner(&row).await?)
    }

    /// Owner of a credential that is no request's but a signature's.
    pub(super) async fn owner_of(&self, row: &CredentialRow) -> Result<Owner, E2bError> {
        may_work(row)?;
        Ok(self.owner(row).await?)
    }
}

/// A caller of the data plane, with the sandbox that it asks about.
impl FromRequestParts<Arc<E2b>> for Target {
    type Rejection = E2bError;
    async fn from_request_parts(parts: &mut Parts, e2b: &Arc<E2b>) -> Result<Self, E2bError> {
        let sandbox = e2b.sandbox_named(parts)?;
        let sandbox = sandbox.ok_or_else(|| E2bError::invalid("`E2b-Sandbox-Id` is missing"))?;
        let owner = e2b.bearer(&parts.headers, &sandbox.id).await?;
        Ok(Self { owner, id: sandbox.id, user: e2b.user_named(&parts.headers)? })
    }
}
