//! Signed links: an expiry with an HMAC-SHA256 over it and what the link opens.
//!
//! ```text
//! TOKEN = EXPIRES_UNIX "." HEX(HMAC(key, OPENED "\n" EXPIRES_UNIX))
//! ```
//! What is opened begins with its kind, so that no link is taken for one of another kind.

use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::caller::BearerToken;

/// Key of signed links. Not printed by `Debug`.
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Key of a secret.
    pub fn new(secret: &BearerToken) -> Self {
        let key = Hmac::new_from_slice(secret.secret()).expect("HMAC takes keys of any length");
        Self(key)
    }

    fn mac(&self, opened: &str, expires: i64) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(format!("{opened}\n{expires}").as_bytes());
        mac
    }

    /// Signs a token that opens something until a time.
    pub fn sign(&self, opened: &str, expires_at: DateTime<Utc>) -> String {
        let expires = expires_at.timestamp();
        let mac = self.mac(opened, expires).finalize().into_bytes();
        let hex: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{expires}.{hex}")
    }

    /// When a token expires, if it was signed for this and has not. Takes as long for a near miss as for a
    /// wild guess.
    pub fn verify(&self, opened: &str, token: &str) -> Option<DateTime<Utc>> {
        let (expires, hex) = token.split_once('.')?;
        let mac = bytes(hex)?;
        // Only the canonical form of a time is signed.
        let time: i64 = expires.parse().ok().filter(|it: &i64| it.to_string() == expires)?;
        self.mac(opened, time).verify_slice(&mac).ok()?;
        DateTime::from_timestamp(time, 0).filter(|at| *at > Utc::now())
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey(..)")
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
