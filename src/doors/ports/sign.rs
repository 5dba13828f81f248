//! Signed links: an expiry with an HMAC-SHA256 over it and what it opens.
//!
//! ```text
//! TOKEN = EXPIRES_UNIX "." HEX(HMAC(key, PURPOSE "\n" WORKSPACE "\n" PORT "\n" EXPIRES_UNIX))
//! ```
//! A link and the cookie that it becomes differ by their purpose, so that neither is taken for the other.

use chrono::{DateTime, Utc};
use hivekeep_kernel::WorkspaceId;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::doors::http::caller::BearerToken;

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
}

/// Key of the links. Not printed by `Debug`.
pub(super) struct LinkKey(Hmac<Sha256>);

impl LinkKey {
    pub(super) fn new(secret: &BearerToken) -> Self {
        let key = Hmac::new_from_slice(secret.secret()).expect("HMAC takes keys of any length");
        Self(key)
    }

    fn mac(&self, kind: PortLink, workspace: WorkspaceId, port: u16, expires: i64) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(format!("{}\n{workspace}\n{port}\n{expires}", kind.purpose()).as_bytes());
        mac
    }

    /// Signs a token that opens a port until a time.
    pub(super) fn sign(
        &self,
        kind: PortLink,
        workspace: WorkspaceId,
        port: u16,
        expires_at: DateTime<Utc>,
    ) -> String {
        let expires = expires_at.timestamp();
        let mac = self.mac(kind, workspace, port, expires).finalize().into_bytes();
        let hex: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{expires}.{hex}")
    }

    /// When a token expires, if it was signed for this port and has not. Takes as long for a near miss as for
    /// a wild guess.
    pub(super) fn verify(
        &self,
        kind: PortLink,
        workspace: WorkspaceId,
        port: u16,
        token: &str,
    ) -> Option<DateTime<Utc>> {
        let (expires, hex) = token.split_once('.')?;
        let mac = bytes(hex)?;
        // Only the canonical form of a time is signed.
        let time: i64 = expires.parse().ok().filter(|it: &i64| it.to_string() == expires)?;
        self.mac(kind, workspace, port, time).verify_slice(&mac).ok()?;
        DateTime::from_timestamp(time, 0).filter(|at| *at > Utc::now())
    }
}

impl std::fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkKey(..)")
    }
}

fn bytes(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if hex.len() != 64 || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

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
