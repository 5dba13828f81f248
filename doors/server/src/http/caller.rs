//! Authentication of a request over HTTP (RFC 6750): the credential or token that it shows, what that allows, and the
//! lasting session of a caller that names none.

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use axum::http::{HeaderMap, Request, header};
use futures::FutureExt as _;
use hivekeep_kernel::{Door, SessionId, ToolError, User, lock};
use hivekeep_policy::SessionProfile;
use hivekeep_registry::{Attachment, OpenSession, SessionsHandle};
use subtle::ConstantTimeEq;

use crate::credentials::{CredentialRow, CredentialScope, Credentials};

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpCaller {
    /// The user that the caller's sessions belong to.
    pub user: User,
    /// Access that the caller's credential gives.
    pub scope: CredentialScope,
    /// The operator's name for the credential.
    pub name: String,
}

impl From<CredentialRow> for HttpCaller {
    fn from(row: CredentialRow) -> Self {
        Self { user: row.user(), scope: row.scope, name: row.name }
    }
}

/// User at the other end of the Unix socket, among the extensions of its requests: the daemon's own, or root.
#[derive(Debug, Clone, Copy)]
pub struct PeerUid(pub u32);

impl HttpCaller {
    /// The owner of the credential that a request shows; without any such header, the user of the Unix socket.
    pub fn of<B>(request: &Request<B>, known: &Credentials) -> Option<Self> {
        let shows = request.headers().contains_key(header::AUTHORIZATION);
        match request.extensions().get::<PeerUid>() {
            Some(PeerUid(uid)) if !shows => {
                let (user, scope) = (User::Uid(*uid), CredentialScope::Operator);
                Some(Self { user, scope, name: format!("uid {uid}") })
            }
            _ => known.find(bearer_of(request.headers())?).map(Self::from),
        }
    }

    /// Whoever has the token of the MCP door's file: a client with sessions of its own.
    pub fn bearer() -> Self {
        Self { user: User::Bearer, scope: CredentialScope::Session, name: "bearer".to_owned() }
    }

    /// True for whoever reaches all sessions.
    pub fn is_operator(&self) -> bool {
        self.scope == CredentialScope::Operator
    }

    /// True for whoever may change something.
    pub fn may_change(&self) -> bool {
        matches!(self.scope, CredentialScope::Operator | CredentialScope::Session)
    }
}

/// Challenge to a request without a credential.
pub const CHALLENGE: &str = r#"Bearer realm="hivekeep""#;
/// Challenge to a request whose credential is none, or was revoked.
pub const INVALID_CHALLENGE: &str = r#"Bearer realm="hivekeep", error="invalid_token""#;
/// Challenge to a request whose credential does not reach so far.
pub const INSUFFICIENT_CHALLENGE: &str = r#"Bearer realm="hivekeep", error="insufficient_scope""#;

/// The credential that a request shows. One that shows two shows none.
pub fn bearer_of(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (given.next()?, given.next());
    match second {
        None => bearer_token(first.as_bytes()),
        Some(_) => None,
    }
}

/// The token of an `Authorization: Bearer` header; the scheme's case is free.
fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Random bytes in a made token: 256 bits, as hexadecimal digits.
const RANDOM_BYTES: usize = 32;
/// Shorter ones can be guessed.
const MIN_CHARS: usize = 32;

/// A secret that clients show. Not printed by `Debug`.
pub struct BearerToken(String);

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The reason why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Others can read it.
    #[error("{} can be read by others (mode {mode:o}): run `chmod 600` on it, or delete it to get a new token", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The file's permissions.
        mode: u32,
    },
    /// The token is too short to be a secret.
    #[error("the token in {} has fewer than {MIN_CHARS} characters: delete the file to get a new one", path.display())]
    Short {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read or written.
    #[error("the token file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl BearerToken {
    /// Reads the token, or makes one if the file is missing.
    ///
    /// # Errors
    /// When the file is readable by others, too short, or unusable.
    pub fn load_or_create(path: &Path) -> Result<Self, TokenError> {
        match Self::load(path) {
            Err(TokenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Self::create(path)
            }
            other => other,
        }
    }

    fn load(path: &Path) -> Result<Self, TokenError> {
        let io = |source| TokenError::Io { path: path.to_owned(), source };
        let text = fs::read_to_string(path).map_err(io)?;
        let mode = fs::metadata(path).map_err(io)?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Exposed { path: path.to_owned(), mode });
        }
        let token = text.trim();
        if token.len() < MIN_CHARS {
            return Err(TokenError::Short { path: path.to_owned() });
        }
        Ok(Self(token.to_owned()))
    }

    fn create(path: &Path) -> Result<Self, TokenError> {
        let io = |source| TokenError::Io { path: path.to_owned(), source };
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(|error| io(io::Error::other(error)))?;
        let mut token = String::with_capacity(2 * RANDOM_BYTES);
        for byte in random {
            let _ = write!(token, "{byte:02x}");
        }
        if let Some(folder) = path.parent() {
            hivekeep_fs::make_folder(folder, 0o700).map_err(io)?;
        }
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
        writeln!(file, "{token}").and_then(|()| file.sync_all()).map_err(io)?;
        hivekeep_fs::sync_parent(path).map_err(io)?;
        Ok(Self(token))
    }

    /// Key for one purpose, from which neither the token nor the key of another purpose can be derived.
    pub fn key_for(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, self.0.as_bytes())
    }

    /// The secret, as the key of a MAC.
    pub fn secret(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Compares with a given token. Takes as long for a near miss as for a wild guess.
    pub fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

/// Holds the sessions for as long as the door is open.
pub struct LastingSessions {
    sessions: SessionsHandle,
    door: Door,
    /// First part of the sessions' names.
    name: &'static str,
    /// No more than there are users of the door: the token's, and the credentials'.
    held: Mutex<HashMap<User, Arc<Attachment>>>,
}

impl LastingSessions {
    /// Sessions of a door, which open with their first request.
    pub fn new(sessions: SessionsHandle, door: Door, name: &'static str) -> Self {
        Self { sessions, door, name, held: Mutex::default() }
    }

    /// The session of a user, opened if it is not there or has ended.
    pub async fn of(
        &self,
        user: User,
        client: impl FnOnce() -> String,
    ) -> Result<SessionId, ToolError> {
        let held = self.held().get(&user).cloned();
        if let Some(held) = held.filter(|held| held.over().now_or_never().is_none()) {
            return Ok(held.session);
        }
        let name = match user {
            User::Bearer => self.name.to_owned(),
            user => format!("{}-{user}", self.name),
        };
        let (door, profile) = (self.door, SessionProfile::default());
        let client = client();
        let request = OpenSession { door, client, user, resume: None, profile };
        let attachment = Arc::new(self.sessions.open_named(&name, request).await?);
        let session = attachment.session;
        self.held().insert(user, attachment);
        Ok(session)
    }

    /// The session of a user, if it is open already.
    pub fn known(&self, user: User) -> Option<SessionId> {
        let held = self.held().get(&user).cloned();
        held.filter(|held| held.over().now_or_never().is_none()).map(|held| held.session)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<User, Arc<Attachment>>> {
        // Nothing between lock and unlock panics; were it so, the map still holds.
        lock(&self.held)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_a_bearer_header_has_a_token() {
        assert_eq!(bearer_token(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer_token(b"bearer  abc "), Some(&b"abc"[..]));
        for other in [&b"Basic abc"[..], b"Bearer", b"Bearerabc", b"", b"abc"] {
            assert_eq!(bearer_token(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn two_headers_show_no_credential() {
        let mut headers = HeaderMap::new();
        headers.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer a"));
        assert_eq!(bearer_of(&headers), Some(&b"a"[..]));
        headers.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer b"));
        assert_eq!(bearer_of(&headers), None);
    }

    #[test]
    fn a_token_is_made_once_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("state/mcp-token");
        let token = BearerToken::load_or_create(&path).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        let again = BearerToken::load_or_create(&path).expect("read");
        assert!(again.is(token.0.as_bytes()));
        let near = format!("{}x", &token.0[..token.0.len() - 1]);
        for other in [near.as_bytes(), &token.0.as_bytes()[1..], b""] {
            assert!(!again.is(other));
        }
        assert!(!format!("{token:?}").contains(&token.0));
    }

    #[test]
    fn an_exposed_or_short_token_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("token");
        BearerToken::load_or_create(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changes");
        assert!(matches!(
            BearerToken::load_or_create(&path),
            Err(TokenError::Exposed { mode: 0o640, .. })
        ));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changes");
        fs::write(&path, "secret\n").expect("writes");
        assert!(matches!(BearerToken::load_or_create(&path), Err(TokenError::Short { .. })));
    }
}
