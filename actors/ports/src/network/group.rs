//! Network groups: names of sets of workspaces that reach one another.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Maximum length of a group's name, in bytes.
const MAX_BYTES: usize = 64;

/// Error for a text that is not a valid group name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a valid group name: expected 1 to 64 letters, digits or hyphens, none at an edge"
)]
pub struct BadGroup {
    text: String,
}

/// Group whose members reach one another, such as a team: 1 to 64 letters, digits and hyphens, no
/// hyphen at an edge. Comparison is exact: `a` is not `A` or `a-b`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NetworkGroup(String);

impl NetworkGroup {
    /// Name of the group.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NetworkGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for NetworkGroup {
    type Err = BadGroup;

    fn from_str(text: &str) -> Result<Self, BadGroup> {
        text.to_owned().try_into()
    }
}

impl TryFrom<String> for NetworkGroup {
    type Error = BadGroup;

    fn try_from(text: String) -> Result<Self, BadGroup> {
        let known = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let edge = text.starts_with('-') || text.ends_with('-');
        match known && !edge && (1..=MAX_BYTES).contains(&text.len()) {
            true => Ok(Self(text)),
            false => Err(BadGroup { text }),
        }
    }
}

impl From<NetworkGroup> for String {
    fn from(group: NetworkGroup) -> Self {
        group.0
    }
}

impl JsonSchema for NetworkGroup {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NetworkGroup".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = "^[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?$";
        json_schema!({ "type": "string", "pattern": pattern })
    }
}

/// Change of a workspace's group. A workspace is in at most one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupChange {
    /// Leave the present group.
    Leave,
    /// Join this group and leave any other.
    Join(NetworkGroup),
}

impl GroupChange {
    /// Group after the change.
    pub fn group(self) -> Option<NetworkGroup> {
        match self {
            Self::Leave => None,
            Self::Join(group) => Some(group),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NetworkRequest, ReachPolicy};

    #[test]
    fn a_group_reads_back_as_written_and_what_is_no_name_is_refused() {
        let longest = "a".repeat(64);
        for good in ["a", "a-b", "A", "0", "a--b", &longest] {
            let group: NetworkGroup = good.parse().expect(good);
            assert_eq!(group.to_string(), good);
            let json = serde_json::to_string(&group).expect("serialises");
            assert_eq!(serde_json::from_str::<NetworkGroup>(&json).expect("reads back"), group);
        }
        let longer = "a".repeat(65);
        for bad in ["", "-", "-a", "a-", "a_b", "a.b", "a b", "ä", "a\n", "@a", "a*", &longer] {
            assert!(bad.parse::<NetworkGroup>().is_err(), "{bad}");
            let json = serde_json::to_string(bad).expect("serialises");
            assert!(serde_json::from_str::<NetworkGroup>(&json).is_err(), "{bad}");
        }
        let [one, other] = ["a", "A"].map(|name| name.parse::<NetworkGroup>().expect(name));
        assert_ne!(one, other);
    }

    #[test]
    fn a_request_says_stay_leave_or_join_and_one_from_before_groups_says_stay() {
        let group: NetworkGroup = "a-b".parse().expect("a name");
        for change in [None, Some(GroupChange::Leave), Some(GroupChange::Join(group))] {
            let request = NetworkRequest { group: change, ..NetworkRequest::default() };
            let json = serde_json::to_string(&request).expect("serialises");
            assert_eq!(serde_json::from_str::<NetworkRequest>(&json).expect("reads back"), request);
        }
        let old = r#"{"allow_internet":true,"allow_inter_vm":null,"allowed_ports":null,"egress_allow":null}"#;
        let request: NetworkRequest = serde_json::from_str(old).expect("reads");
        assert_eq!(
            request,
            NetworkRequest { allow_internet: Some(true), ..NetworkRequest::default() }
        );
    }

    #[test]
    fn a_policy_without_a_group_is_told_as_before() {
        let json = serde_json::to_value(ReachPolicy::default()).expect("serialises");
        assert_eq!(json.get("group"), None);
        let back: ReachPolicy = serde_json::from_value(json).expect("reads back");
        assert_eq!(back, ReachPolicy::default());
    }
}
