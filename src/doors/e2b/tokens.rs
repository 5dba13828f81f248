//! Access tokens of sandboxes: message authentication codes over credential and workspace, so that none is
//! stored.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use hivekeep_kernel::{CredentialId, WorkspaceId};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::doors::http::caller::BearerToken;

/// Purpose that the key is derived for.
const PURPOSE: &str = "hivekeep 2026 access tokens of E2B sandboxes";

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
        Self(secret.key_for(PURPOSE))
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
pub(super) fn named_by(token: &[u8]) -> Option<CredentialId> {
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
