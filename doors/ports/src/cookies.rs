//! Signed links ([`SigningKey`]) to ports, and the cookies that they become. What they open is written as `PURPOSE "\n"
//! WORKSPACE "\n" PORT`.
//!
//! A link and its cookie differ by their purpose, so that neither is taken for the other. The daemon's own cookies stay
//! here.

use axum::http::{HeaderMap, HeaderValue, header};
use chrono::{DateTime, Utc};
use hivekeep_door_server::{
    http::{caller::BearerToken, links::SigningKey},
    proxy::cookies::{PORT_COOKIE, port_cookie},
};
use hivekeep_kernel::WorkspaceId;

/// Cookie of a token, for this host alone and for as long as the token lasts.
pub(super) fn set(token: &str, max_age_secs: i64, scheme: &str) -> String {
    let secure = if scheme == "https" { "; Secure" } else { "" };
    format!("{PORT_COOKIE}={token}; Path=/; Max-Age={max_age_secs}; HttpOnly; SameSite=Lax{secure}")
}

/// The daemon's cookies of a request: there is more than one where somebody has set another.
pub(super) fn ours(headers: &HeaderMap) -> Vec<String> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let ours = all.flat_map(|value| value.split(';')).filter_map(port_cookie);
    ours.map(str::to_owned).collect()
}

/// Takes the daemon's cookies out of a request.
pub(super) fn strip(headers: &mut HeaderMap) {
    let all: Vec<HeaderValue> = headers.get_all(header::COOKIE).iter().cloned().collect();
    headers.remove(header::COOKIE);
    for value in all {
        let Ok(text) = value.to_str() else {
            // A value with bytes that no cookie has may hold the daemon's, and is not passed on.
            continue;
        };
        let theirs: Vec<&str> =
            text.split(';').map(str::trim).filter(|pair| port_cookie(pair).is_none()).collect();
        if let Ok(value) = HeaderValue::from_str(&theirs.join("; "))
            && !value.is_empty()
        {
            headers.append(header::COOKIE, value);
        }
    }
}

/// Form in which a token is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PortLink {
    /// Token in the query of a URL, or in a header.
    Link,
    /// Token in a cookie.
    Cookie,
}

impl PortLink {
    fn purpose(self) -> &'static str {
        match self {
            Self::Link => "hivekeep port link 1",
            Self::Cookie => "hivekeep port cookie 1",
        }
    }

    fn opened(self, workspace: WorkspaceId, port: u16) -> String {
        format!("{}\n{workspace}\n{port}", self.purpose())
    }
}

/// Key of the links to ports.
#[derive(Debug)]
pub(super) struct LinkKey(SigningKey);

impl LinkKey {
    pub(super) fn new(secret: &BearerToken) -> Self {
        Self(SigningKey::new(secret))
    }

    /// Signs a token that opens a port until a time.
    pub(super) fn sign(
        &self,
        kind: PortLink,
        workspace: WorkspaceId,
        port: u16,
        expires_at: DateTime<Utc>,
    ) -> String {
        self.0.sign(&kind.opened(workspace, port), expires_at)
    }

    /// When a token expires, if it was signed for this port and has not.
    pub(super) fn verify(
        &self,
        kind: PortLink,
        workspace: WorkspaceId,
        port: u16,
        token: &str,
    ) -> Option<DateTime<Utc>> {
        self.0.verify(&kind.opened(workspace, port), token)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn headers(name: header::HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    fn values(headers: &HeaderMap, name: header::HeaderName) -> Vec<&str> {
        headers.get_all(name).iter().map(|value| value.to_str().expect("text")).collect()
    }

    #[test]
    fn ours_are_found_and_taken_out_of_a_request() {
        let sent = ["a=1; hivekeep_port=x.y; b=2", "hivekeep_port=z", "hivekeep_portal=3; c"];
        let mut headers = headers(header::COOKIE, &sent);
        assert_eq!(ours(&headers), ["x.y", "z"]);
        strip(&mut headers);
        assert_eq!(values(&headers, header::COOKIE), ["a=1; b=2", "hivekeep_portal=3; c"]);
    }

    fn key() -> LinkKey {
        let folder = tempfile::tempdir().expect("a folder");
        LinkKey::new(&BearerToken::load_or_create(&folder.path().join("key")).expect("made"))
    }

    #[test]
    fn a_token_opens_its_port_until_it_expires_and_nothing_else() {
        let (key, id, now) = (key(), WorkspaceId::new(), Utc::now());
        let good = key.sign(PortLink::Link, id, 80, now + TimeDelta::seconds(60));
        let open = |kind, id, port, token: &str| key.verify(kind, id, port, token).is_some();
        assert!(open(PortLink::Link, id, 80, &good));
        assert!(!open(PortLink::Cookie, id, 80, &good), "a link is not a cookie");
        assert!(!open(PortLink::Link, id, 81, &good), "another port");
        assert!(!open(PortLink::Link, WorkspaceId::new(), 80, &good), "another workspace");
        let past = key.sign(PortLink::Link, id, 80, now - TimeDelta::seconds(1));
        assert!(!open(PortLink::Link, id, 80, &past), "expired");
        let (expires, mac) = good.split_once('.').expect("two parts");
        let later: i64 = expires.parse::<i64>().expect("a time") + 60;
        for forged in [
            format!("{later}.{mac}"),
            format!("+{expires}.{mac}"),
            format!("{expires}.{}", "0".repeat(64)),
            String::new(),
            ".".to_owned(),
            mac.to_owned(),
        ] {
            assert!(!open(PortLink::Link, id, 80, &forged), "{forged}");
        }
        let other = super::tests::key();
        assert!(other.verify(PortLink::Link, id, 80, &good).is_none(), "another daemon's key");
    }
}
