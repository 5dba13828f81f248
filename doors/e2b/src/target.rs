//! Sandbox that a request of the data plane is about, and the user that it is made for.

use axum::http::{HeaderMap, Uri, header, request::Parts};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    error::{E2bError, Kind},
    state::{E2b, Owner},
};

/// Port of the data plane in the published system.
pub(super) const ENVD_PORT: u16 = 49_983;
/// Longest name of a workspace.
const NAME_CHARS: usize = 63;
/// Longest name of a user.
const USER_CHARS: usize = 32;

/// A sandbox, and one of its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SandboxPort {
    pub(super) id: String,
    pub(super) port: u16,
}

/// Sandbox of an authenticated request.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) owner: Owner,
    /// Name of the workspace.
    pub(super) id: String,
    /// User in the sandbox.
    pub(super) user: String,
}

impl Target {
    /// Place of an absolute path, or of one below the user's home; and the path there.
    pub(super) fn place_of<'p>(&self, path: &'p str) -> (String, &'p str) {
        match path.strip_prefix('/') {
            Some(below) => (self.place("/"), if below.is_empty() { "." } else { below }),
            None => (self.place("~"), if path.is_empty() { "." } else { path }),
        }
    }

    /// Place with a root of its own, in scp's notation.
    pub(super) fn place(&self, root: &str) -> String {
        format!("{}@{}:{root}", self.user, self.id)
    }

    pub(super) fn with_user(self, user: String) -> Self {
        Self { user, ..self }
    }
}

impl SandboxPort {
    fn new(id: &str, port: u16) -> Result<Self, E2bError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        match (1..=NAME_CHARS).contains(&id.len()) && id.bytes().all(fits) {
            true => Ok(Self { id: id.to_owned(), port }),
            false => Err(E2bError::no_sandbox(id)),
        }
    }

    /// Sandbox and port of a host `PORT-SANDBOX.DOMAIN`.
    fn of_host(host: &str, domain: &str) -> Option<Self> {
        let name = host.len().checked_sub(domain.len()).and_then(|at| host.split_at_checked(at));
        let (label, rest) = name?;
        let (label, is_ours) = (label.strip_suffix('.')?, rest.eq_ignore_ascii_case(domain));
        let (port, id) = label.split_once('-').filter(|_| is_ours)?;
        Self::new(id, port.parse().ok()?).ok()
    }
}

fn host<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Option<&'r str> {
    let named = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    named.or_else(|| uri.authority().map(|authority| authority.as_str()))
}

impl E2b {
    /// The sandbox that a request names by its host.
    pub(super) fn named_by_host(&self, parts: &Parts) -> Option<SandboxPort> {
        SandboxPort::of_host(host(&parts.uri, &parts.headers)?, &self.domain)
    }

    /// The sandbox that a request names by its host, or by its headers.
    ///
    /// # Errors
    /// For a port or an id that is none.
    pub(super) fn sandbox_named(&self, parts: &Parts) -> Result<Option<SandboxPort>, E2bError> {
        if let Some(named) = self.named_by_host(parts) {
            return Ok(Some(named));
        }
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let Some(id) = text("e2b-sandbox-id") else { return Ok(None) };
        let port = match text("e2b-sandbox-port") {
            None => ENVD_PORT,
            Some(port) => {
                port.parse().map_err(|_| E2bError::invalid("`E2b-Sandbox-Port` is not a port"))?
            }
        };
        SandboxPort::new(id, port).map(Some)
    }

    /// The user of a request's basic authentication, which has no password, or the usual one.
    ///
    /// # Errors
    /// For a name that is none.
    pub(super) fn user_named(&self, headers: &HeaderMap) -> Result<String, E2bError> {
        let basic = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(given) = basic.and_then(|text| text.strip_prefix("Basic ")) else {
            return Ok(self.options.user.clone());
        };
        let text = STANDARD.decode(given.trim()).ok().and_then(|text| String::from_utf8(text).ok());
        let text = text.ok_or_else(|| no_user("the user of a request is not readable"))?;
        self.user(text.split_once(':').map_or(text.as_str(), |(user, _)| user))
    }

    /// A user by name; the usual one for an empty name.
    ///
    /// # Errors
    /// For a name that is none.
    pub(super) fn user(&self, name: &str) -> Result<String, E2bError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        match name {
            "" => Ok(self.options.user.clone()),
            name if name.len() <= USER_CHARS && name.bytes().all(fits) => Ok(name.to_owned()),
            _ => Err(no_user("the name of the user is not valid")),
        }
    }
}

fn no_user(why: &str) -> E2bError {
    E2bError::new(Kind::Unauthenticated, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_names_a_port_of_a_sandbox_below_the_domain() {
        let of = |host| SandboxPort::of_host(host, "localhost:7720");
        let port = |id: &str, port| Some(SandboxPort { id: id.to_owned(), port });
        assert_eq!(of("3000-i9.localhost:7720"), port("i9", 3000));
        assert_eq!(of("3000-my-box.LOCALHOST:7720"), port("my-box", 3000));
        for other in [
            "localhost:7720",
            "3000-i9.localhost",
            "3000-i9.localhost:7720.evil.example",
            "3000-i9.evil.example",
            "x-i9.localhost:7720",
            "70000-i9.localhost:7720",
            "3000-.localhost:7720",
            "a.3000-i9.localhost:7720",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
