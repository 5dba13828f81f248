//! The bearer token of the HTTP door.

use std::{
    fmt::Write as _,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use subtle::ConstantTimeEq;

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
    pub(in crate::doors) fn secret(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Compares with a given token. Takes as long for a near miss as for a wild guess.
    pub fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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
