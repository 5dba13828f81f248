//! Names of workspaces. One rule suits the host's folders, the guest's hostname and names on the
//! network: a DNS label.

use std::{fmt, str::FromStr};

use hivekeep_kernel::ToolError;
use serde::{Deserialize, Serialize, de};

/// A workspace's unique name: 1 to 63 of `a-z`, `0-9` and `-`, with a letter or
/// digit at both ends (RFC 1123). No name looks like an id, since ids hold `_`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct WorkspaceName(String);

/// A text that is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid workspace name: use 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit"
)]
pub struct NameError(String);

impl From<NameError> for ToolError {
    fn from(error: NameError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl WorkspaceName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name for a workspace that was given none: `ws-` and eight characters
    /// of its id that differ between ids made at the same moment.
    pub fn default_for(id: hivekeep_kernel::WorkspaceId) -> Self {
        let hex = id.uuid().simple().to_string();
        Self(format!("ws-{}", &hex[hex.len() - 8..]))
    }
}

impl FromStr for WorkspaceName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = text.as_bytes();
        let sound = bytes.len() <= 63
            && edge(bytes.first().copied())
            && edge(bytes.last().copied())
            && bytes.iter().all(|b| edge(Some(*b)) || *b == b'-');
        if sound {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(text.chars().take(80).collect()))
        }
    }
}

impl fmt::Display for WorkspaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for WorkspaceName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels() {
        for good in ["a", "a-b", "0", "build-7", &"x".repeat(63)] {
            assert!(good.parse::<WorkspaceName>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "a b", "ä", "../x", &"x".repeat(64)] {
            assert!(bad.parse::<WorkspaceName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn default_names_are_names_and_differ() {
        let (a, b) = (hivekeep_kernel::WorkspaceId::new(), hivekeep_kernel::WorkspaceId::new());
        let (a, b) = (WorkspaceName::default_for(a), WorkspaceName::default_for(b));
        assert_ne!(a, b);
        assert!(a.as_str().parse::<WorkspaceName>().is_ok());
    }
}
