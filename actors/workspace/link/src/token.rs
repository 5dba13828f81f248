use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use zeroize::Zeroize;

const LEN: usize = 32;

/// Secret of a machine. Its holder can control the guest; the guest itself has only the hash. Never
/// shown; wiped from memory when dropped.
///
/// Serialized (for the owner's journal) as 64 hex digits.
#[derive(Clone)]
pub struct LinkToken([u8; LEN]);

impl LinkToken {
    /// Makes a token from the operating system's random source.
    ///
    /// # Errors
    /// Fails when the system gives no random bytes.
    pub fn generate() -> std::io::Result<Self> {
        let mut bytes = [0; LEN];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Makes a token of known bytes.
    pub fn from_bytes(bytes: [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// BLAKE3 of the token as 64 hex digits, as the guest is given it.
    pub fn hash_hex(&self) -> String {
        blake3::hash(&self.0).to_hex().to_string()
    }

    /// BLAKE3 of the token.
    pub fn hash(&self) -> [u8; LEN] {
        *blake3::hash(&self.0).as_bytes()
    }

    pub(super) fn bytes(&self) -> [u8; LEN] {
        self.0
    }
}

impl Drop for LinkToken {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for LinkToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkToken(..)")
    }
}

impl Serialize for LinkToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // `Hash` is only a 32-byte array here; nothing is hashed.
        serializer.serialize_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl<'de> Deserialize<'de> for LinkToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = String::deserialize(deserializer)?;
        let parsed = blake3::Hash::from_hex(&text);
        text.zeroize();
        parsed
            .map(|hash| Self(*hash.as_bytes()))
            .map_err(|_| D::Error::custom("a link token is 64 hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_journal_and_is_never_shown() {
        let token = LinkToken::generate().unwrap();
        let json = serde_json::to_string(&token).unwrap();
        let back: LinkToken = serde_json::from_str(&json).unwrap();
        assert_eq!(back.bytes(), token.bytes());
        assert_eq!(back.hash_hex(), blake3::hash(&token.bytes()).to_hex().as_str());
        assert_eq!(format!("{token:?}"), "LinkToken(..)");
        assert!(serde_json::from_str::<LinkToken>("\"abc\"").is_err());
    }
}
