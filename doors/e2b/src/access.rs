//! Authentication of requests: a key on the control plane, a token or a signature on the data plane. It takes the head
//! of a request, and nothing of its sandbox's owner: whoever shows nothing that holds costs nobody a call.
//!
//! Tokens are message authentication codes over credential and workspace, so that none is stored.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use hivekeep_door_server::{
    credentials::{CredentialRow, CredentialScope},
    http::caller::BearerToken,
};
use hivekeep_kernel::{CredentialId, SessionId, ToolError, User, WorkspaceId};
use hivekeep_ports::{FoundWorkspace, WorkspaceFiles};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{
    error::{E2bError, Kind},
    state::{E2b, Owner},
    target::Target,
};

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
        CredentialScope::ReadOnly | CredentialScope::Webhook => {
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
        let credential = format!("{}{key}", hivekeep_door_server::credentials::PREFIX);
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
        let Some(row) = named_by(token).and_then(|id| self.live(id)) else {
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

/// Purpose that the key is derived for.
const TOKEN_PURPOSE: &str = "hivekeep 2026 access tokens of E2B sandboxes";

/// Makes and checks access tokens. A token is bound to a workspace and not to its name: a new workspace under
/// an old name has other tokens.
pub(super) struct AccessTokens([u8; 32]);

/// Access that a token gives to a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// All that its credential may do.
    Access,
    /// Reaching the sandbox's ports, and no more.
    Traffic,
}

/// Operation on one file that a signed URL allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileOperation {
    Read,
    Write,
}

/// File that a URL is signed for.
#[derive(Debug, Clone, Copy)]
pub(super) struct SignedFile<'a> {
    pub(super) path: &'a str,
    pub(super) operation: FileOperation,
    /// User in the URL; empty without one.
    pub(super) user: &'a str,
    /// Unix time in seconds, as the URL has it.
    pub(super) expires: Option<i64>,
}

impl AccessTokens {
    pub(super) fn new(secret: &BearerToken) -> Self {
        Self(secret.key_for(TOKEN_PURPOSE))
    }

    /// The token of a credential's sandbox.
    pub(super) fn of(
        &self,
        kind: TokenKind,
        credential: CredentialId,
        sandbox: WorkspaceId,
    ) -> String {
        let purpose = match kind {
            TokenKind::Access => "access",
            TokenKind::Traffic => "traffic",
        };
        let said = format!("{purpose}\0{credential}\0{sandbox}");
        let code = blake3::keyed_hash(&self.0, said.as_bytes());
        format!("{credential}.{}", code.to_hex())
    }

    /// Whether this is the token of a credential's sandbox.
    pub(super) fn is(
        &self,
        kind: TokenKind,
        (credential, sandbox): (CredentialId, WorkspaceId),
        token: &[u8],
    ) -> bool {
        self.of(kind, credential, sandbox).as_bytes().ct_eq(token).into()
    }

    /// Whether a signature of a file's URL is one by the token of a credential's sandbox.
    pub(super) fn has_signed(
        &self,
        (credential, sandbox): (CredentialId, WorkspaceId),
        file: SignedFile<'_>,
        signature: &str,
    ) -> bool {
        let token = self.of(TokenKind::Access, credential, sandbox);
        bool::from(file.signature(&token).as_bytes().ct_eq(signature.as_bytes()))
    }
}

/// The credential that a token names, whether or not the token is one.
fn named_by(token: &[u8]) -> Option<CredentialId> {
    std::str::from_utf8(token).ok()?.split_once('.')?.0.parse().ok()
}

impl SignedFile<'_> {
    /// The signature, as the published SDKs make it.
    fn signature(&self, token: &str) -> String {
        let Self { path, user, .. } = self;
        let operation = match self.operation {
            FileOperation::Read => "read",
            FileOperation::Write => "write",
        };
        let expires = self.expires.map(|secs| format!(":{secs}")).unwrap_or_default();
        let signed = format!("{path}:{operation}:{user}:{token}{expires}");
        format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(signed.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_kind_one_credential_and_one_sandbox() {
        let (tokens, others) = (AccessTokens([1; 32]), AccessTokens([2; 32]));
        let (mine, yours) = (CredentialId::new(), CredentialId::new());
        let (sandbox, other) = (WorkspaceId::new(), WorkspaceId::new());
        let (access, traffic) = (TokenKind::Access, TokenKind::Traffic);
        let token = tokens.of(access, mine, sandbox);
        let is = |kind, of, token: &str| tokens.is(kind, of, token.as_bytes());
        assert!(is(access, (mine, sandbox), &token));
        assert_eq!(named_by(token.as_bytes()), Some(mine));
        assert!(!is(traffic, (mine, sandbox), &token));
        assert!(!is(access, (mine, other), &token) && !is(access, (yours, sandbox), &token));
        assert!(!others.is(access, (mine, sandbox), token.as_bytes()));
        let forged = token.replace(&mine.to_string(), &yours.to_string());
        assert!(!is(access, (yours, sandbox), &forged));
        assert!(is(traffic, (mine, sandbox), &tokens.of(traffic, mine, sandbox)));
        for nonsense in ["", ".", "cred_x.y", &token[1..]] {
            assert_eq!(named_by(nonsense.as_bytes()), None, "{nonsense}");
        }
    }

    #[test]
    fn a_signature_is_of_one_file_one_operation_and_one_time() {
        let (tokens, mine, sandbox) =
            (AccessTokens([1; 32]), CredentialId::new(), WorkspaceId::new());
        let read = FileOperation::Read;
        let file = SignedFile { path: "a.txt", operation: read, user: "", expires: Some(9) };
        let signature = file.signature(&tokens.of(TokenKind::Access, mine, sandbox));
        let is = |file| tokens.has_signed((mine, sandbox), file, &signature);
        assert!(is(file));
        assert!(!is(SignedFile { path: "b.txt", ..file }));
        assert!(!is(SignedFile { operation: FileOperation::Write, ..file }));
        assert!(!is(SignedFile { user: "root", ..file }));
        assert!(!is(SignedFile { expires: Some(10), ..file }));
        assert!(!is(SignedFile { expires: None, ..file }));
        assert!(!tokens.has_signed((mine, WorkspaceId::new()), file, &signature));
    }

    #[test]
    fn signatures_are_those_of_the_published_sdks() {
        // `get_signature("/x", "read", "user", "token", None)` of PyPI's e2b 2.63.0.
        let file =
            SignedFile { path: "/x", operation: FileOperation::Read, user: "user", expires: None };
        assert_eq!(file.signature("token"), "v1_9zL+QEw6HsQRl3zkGYu0YQTVc318uVbgTqpjIko26lw");
    }
}
