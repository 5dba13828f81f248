//! User of a session, as the door knows it: never as a client describes itself.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::CredentialId;

/// A user: all its sessions together have one allowance, and what outlives them belongs to it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub enum User {
    /// A user of this host, by the credential of the socket's peer.
    Uid(u32),
    /// Whoever has the token of the HTTP door.
    Bearer,
    /// Whoever has this credential.
    Credential(CredentialId),
    /// Nobody who is known: calls of a session that is not.
    Nobody,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uid(uid) => write!(f, "uid:{uid}"),
            Self::Bearer => f.write_str("bearer"),
            Self::Credential(id) => write!(f, "credential:{id}"),
            Self::Nobody => f.write_str("nobody"),
        }
    }
}

impl From<User> for String {
    fn from(user: User) -> Self {
        user.to_string()
    }
}

impl FromStr for User {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bearer" => Ok(Self::Bearer),
            "nobody" => Ok(Self::Nobody),
            other => {
                let uid = other.strip_prefix("uid:").and_then(|uid| uid.parse().ok());
                let credential = other.strip_prefix("credential:").and_then(|id| id.parse().ok());
                uid.map(Self::Uid)
                    .or(credential.map(Self::Credential))
                    .ok_or_else(|| format!("`{other}` is not a valid user"))
            }
        }
    }
}

impl TryFrom<String> for User {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let credential = User::Credential(CredentialId::new());
        for user in [User::Uid(0), User::Uid(u32::MAX), User::Bearer, credential, User::Nobody] {
            assert_eq!(user.to_string().parse(), Ok(user));
        }
        for bad in ["", "uid:", "uid:-1", "uid:x", "root", "credential:", "credential:cred_1"] {
            assert!(bad.parse::<User>().is_err(), "{bad}");
        }
    }
}
