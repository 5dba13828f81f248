//! Access tokens of sandboxes: message authentication codes over whose and which, so that none is stored.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use hivekeep_kernel::CredentialId;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::doors::http::token::BearerToken;

/// What the key is for.
const PURPOSE: &str = "hivekeep 2026 access tokens of E2B sandboxes";

/// Makes and checks them.
pub(super) struct AccessTokens([u8; 32]);

/// What a signed URL lets its bearer do with one file.
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
    /// As the URL has it; empty without one.
    pub(super) user: &'a str,
    /// Unix time in seconds, as the URL has it.
    pub(super) expires: Option<i64>,
}

impl AccessTokens {
    pub(super) fn new(secret: &BearerToken) -> Self {
        Self(secret.key_for(PURPOSE))
    }

    /// The access token of a credential's sandbox. It lets its bearer do with the sandbox what the credential may.
    pub(super) fn of(&self, credential: CredentialId, sandbox: &str) -> String {
        self.token("access", credential, sandbox)
    }

    /// The traffic token of a credential's sandbox. It lets its bearer reach the sandbox's ports, and no more.
    pub(super) fn traffic(&self, credential: CredentialId, sandbox: &str) -> String {
        self.token("traffic", credential, sandbox)
    }

    fn token(&self, purpose: &str, credential: CredentialId, sandbox: &str) -> String {
        let said = format!("{purpose}\0{credential}\0{sandbox}");
        let code = blake3::keyed_hash(&self.0, said.as_bytes());
        format!("{credential}.{}", code.to_hex())
    }

    /// The credential whose access token this is, if it is one of the sandbox.
    pub(super) fn credential(&self, token: &[u8], sandbox: &str) -> Option<CredentialId> {
        known(token, |credential| self.of(credential, sandbox))
    }

    /// The same of a traffic token.
    pub(super) fn traffic_credential(&self, token: &[u8], sandbox: &str) -> Option<CredentialId> {
        known(token, |credential| self.traffic(credential, sandbox))
    }

    /// Whether a signature of a file's URL is one by the token of a credential's sandbox.
    pub(super) fn has_signed(
        &self,
        (credential, sandbox): (CredentialId, &str),
        file: SignedFile<'_>,
        signature: &str,
    ) -> bool {
        let token = self.of(credential, sandbox);
        bool::from(file.signature(&token).as_bytes().ct_eq(signature.as_bytes()))
    }
}

/// The credential that a token names, if the token is the right one.
fn known(token: &[u8], right: impl Fn(CredentialId) -> String) -> Option<CredentialId> {
    let (credential, _) = std::str::from_utf8(token).ok()?.split_once('.')?;
    let credential = credential.parse().ok()?;
    bool::from(right(credential).as_bytes().ct_eq(token)).then_some(credential)
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
    fn a_token_is_of_one_credential_and_one_sandbox() {
        let (tokens, others) = (AccessTokens([1; 32]), AccessTokens([2; 32]));
        let (mine, yours) = (CredentialId::new(), CredentialId::new());
        let token = tokens.of(mine, "box");
        assert_eq!(tokens.credential(token.as_bytes(), "box"), Some(mine));
        assert_eq!(tokens.credential(token.as_bytes(), "other"), None);
        assert_eq!(others.credential(token.as_bytes(), "box"), None);
        let forged = token.replace(&mine.to_string(), &yours.to_string());
        assert_eq!(tokens.credential(forged.as_bytes(), "box"), None);
        let traffic = tokens.traffic(mine, "box");
        assert_eq!(tokens.traffic_credential(traffic.as_bytes(), "box"), Some(mine));
        assert_eq!(tokens.credential(traffic.as_bytes(), "box"), None, "it is for ports alone");
        assert_eq!(tokens.traffic_credential(traffic.as_bytes(), "other"), None);
        for nonsense in ["", ".", "cred_x.y", &token[1..]] {
            assert_eq!(tokens.credential(nonsense.as_bytes(), "box"), None, "{nonsense}");
        }
    }

    #[test]
    fn a_signature_is_of_one_file_one_operation_and_one_time() {
        let (tokens, mine) = (AccessTokens([1; 32]), CredentialId::new());
        let read = FileOperation::Read;
        let file = SignedFile { path: "a.txt", operation: read, user: "", expires: Some(9) };
        let signature = file.signature(&tokens.of(mine, "box"));
        let is = |file| tokens.has_signed((mine, "box"), file, &signature);
        assert!(is(file));
        assert!(!is(SignedFile { path: "b.txt", ..file }));
        assert!(!is(SignedFile { operation: FileOperation::Write, ..file }));
        assert!(!is(SignedFile { user: "root", ..file }));
        assert!(!is(SignedFile { expires: Some(10), ..file }));
        assert!(!is(SignedFile { expires: None, ..file }));
        assert!(!tokens.has_signed((mine, "other"), file, &signature));
    }

    #[test]
    fn signatures_are_those_of_the_published_sdks() {
        // `get_signature("/x", "read", "user", "token", None)` of PyPI's e2b 2.63.0.
        let file =
            SignedFile { path: "/x", operation: FileOperation::Read, user: "user", expires: None };
        assert_eq!(file.signature("token"), "v1_9zL+QEw6HsQRl3zkGYu0YQTVc318uVbgTqpjIko26lw");
    }
}
