//! Remote of a repository: a server, or a bare repository on a volume of the user; and the credential for it.

use hivekeep_kernel::{Layer, SecretString, ToolError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::codes;

/// Maximum length of an address, in bytes.
const MAX_BYTES: usize = 2048;
/// Schemes of servers.
const SERVERS: [&str; 3] = ["https", "http", "git"];
const VOLUME: &str = "volume://";
/// Where the volume of a remote is mounted.
pub(crate) const REMOTE_FOLDER: &str = "/remote";

/// Remote of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remote {
    /// A server that is reached over the network.
    Server(String),
    /// A bare repository on a volume.
    Volume { label: String, path: String },
}

impl Remote {
    /// Parses an address; credentials are not part of one, for it is recorded.
    ///
    /// # Errors
    /// `invalid_input`, without repeating the address; `remote_unsupported`.
    pub(crate) fn parse(text: &str) -> Result<Self, ToolError> {
        let refused = |why: &str| {
            Err(ToolError::invalid(format!("repo_url {why}"))
                .next("give https://HOST/PATH, or volume://LABEL/PATH for a repository on a volume of yours"))
        };
        if text.len() > MAX_BYTES {
            return refused("is longer than 2048 bytes");
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return refused("contains a space or a control character");
        }
        if let Some(place) = text.strip_prefix(VOLUME) {
            let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
            return match place.split_once('/') {
                Some((label, path)) if !label.is_empty() && path.split('/').all(plain) => {
                    Ok(Self::Volume { label: label.to_owned(), path: path.to_owned() })
                }
                _ => refused("names no repository on a volume"),
            };
        }
        let url = match Url::parse(text) {
            Ok(url) if SERVERS.contains(&url.scheme()) => url,
            Ok(url) if !["ssh", "file", "git+ssh"].contains(&url.scheme()) => {
                return refused("has an unsupported scheme");
            }
            Err(_) if !text.contains('@') => return refused("has no scheme"),
            _ => {
                let message = "the remote is reached over ssh or is a file of a machine";
                return Err(ToolError::new(Layer::Actor, codes::REMOTE_UNSUPPORTED, message)
                    .next("give an https:// address, or volume://LABEL/PATH"));
            }
        };
        if url.host_str().is_none_or(str::is_empty) {
            return refused("names no host");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refused("has a user or a password in it; give them as `credential`");
        }
        Ok(Self::Server(text.to_owned()))
    }

    /// Scheme, name and port of an http or https server: what a credential is for.
    pub(crate) fn origin(&self) -> Option<String> {
        let Self::Server(url) = self else { return None };
        let origin = Url::parse(url).ok()?.origin();
        origin.is_tuple().then(|| origin.ascii_serialization())
    }

    /// Address for git in the workspace.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Server(url) => url.clone(),
            Self::Volume { path, .. } => format!("file://{REMOTE_FOLDER}/{path}"),
        }
    }
}

/// Credential that a call brings along. It reaches git for this one operation and is kept nowhere.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoteCredential {
    /// The user's name; left out for servers that only look at the token.
    username: Option<String>,
    /// Token or password.
    token: SecretString,
}

impl RemoteCredential {
    /// Argument of the git tools. `server` is the origin that git may send it to: the remote that the
    /// tree's own configuration names can be changed by whoever writes the tree.
    pub(crate) fn for_git(&self, server: Option<&str>) -> Value {
        let mut credential = json!({ "token": self.token.expose() });
        for (field, value) in [("username", self.username.as_deref()), ("host", server)] {
            if let Some(value) = value {
                credential[field] = json!(value);
            }
        }
        credential
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_volumes_are_remotes() {
        for text in ["https://example.org/a/b.git", "http://h:81/r", "git://example.org/r"] {
            let remote = Remote::parse(text).expect(text);
            assert_eq!(remote.address(), text);
        }
        for (text, origin) in [
            ("https://Example.org:443/a/b.git", Some("https://example.org")),
            ("http://h:81/r", Some("http://h:81")),
            ("git://example.org/r", None),
            ("volume://hub/r", None),
        ] {
            assert_eq!(Remote::parse(text).expect(text).origin().as_deref(), origin, "{text}");
        }
        let remote = Remote::parse("volume://my-hub/team/app.git").expect("a remote");
        assert_eq!(remote.address(), "file:///remote/team/app.git");
    }

    #[test]
    fn what_holds_a_secret_leaves_a_volume_or_is_no_server_is_refused() {
        for (text, code) in [
            ("https://me:s3cr3t@example.org/r", "invalid_input"),
            ("https://s3cr3t@example.org/r", "invalid_input"),
            ("volume://hub/../x", "invalid_input"),
            ("volume://hub", "invalid_input"),
            ("volume:///x", "invalid_input"),
            ("volume://hub//x", "invalid_input"),
            ("ext::sh -c id", "invalid_input"),
            ("ext::sh", "invalid_input"),
            ("--upload-pack=x", "invalid_input"),
            ("https://", "invalid_input"),
            ("example.org/r", "invalid_input"),
            ("git@example.org:r", "remote_unsupported"),
            ("ssh://git@example.org/r", "remote_unsupported"),
            ("file:///etc", "remote_unsupported"),
        ] {
            let error = Remote::parse(text).expect_err(text);
            assert_eq!(error.code, code, "{text}");
            assert!(!error.to_text().contains("s3cr3t"));
        }
    }
}
