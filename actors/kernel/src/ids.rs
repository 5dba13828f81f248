//! Typed ids: newtypes of a UUIDv7 with a prefix that names the kind, so that ids sort by age and
//! one kind cannot be passed for another; and users.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, de};
use uuid::{Builder, Uuid, Version};

/// Error for a text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid {kind} id: expected `{prefix}_` and 32 hex digits")]
pub struct IdError {
    text: String,
    kind: &'static str,
    prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// Text before the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// Makes an id later than every id made before on this machine.
            #[allow(clippy::new_without_default)]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// UUID of the id, without its prefix.
            pub fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix(concat!($prefix, "_"))
                    .filter(|hex| hex.len() == 32 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
                    .and_then(|hex| Uuid::try_parse(hex).ok())
                    .map(Self)
                    .ok_or_else(|| IdError { text: text.to_owned(), kind: $kind, prefix: $prefix })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": concat!("^", $prefix, "_[0-9a-f]{32}$") })
            }
        }
    };
}

id!(
    /// A workspace.
    WorkspaceId, "workspace", "ws"
);
id!(
    /// An attachment of a client.
    SessionId, "session", "ses"
);
id!(
    /// A background job of a workspace.
    JobId, "job", "job"
);
id!(
    /// A snapshot of a workspace.
    SnapshotId, "snapshot", "snap"
);
id!(
    /// A layer of a workspace's disk.
    LayerId, "layer", "layer"
);
id!(
    /// A tool call.
    CallId, "call", "call"
);

id!(
    /// A team of workspaces.
    TeamId, "team", "team"
);
id!(
    /// A message between the members of a team.
    MessageId, "message", "msg"
);
id!(
    /// A swarm: tasks, each in a fork of one snapshot.
    SwarmId, "swarm", "swarm"
);
id!(
    /// A script of a user's library.
    ScriptId, "script", "script"
);
id!(
    /// An agent: a name of a registry, with all its versions.
    AgentId, "agent", "agent"
);
id!(
    /// An execution: a run of an agent.
    ExecutionId, "execution", "exec"
);
id!(
    /// A workflow: a name of a registry, with all its versions.
    WorkflowId, "workflow", "workflow"
);
id!(
    /// A run of a workflow or of a DAG.
    RunId, "run", "run"
);
id!(
    /// A DAG that begins by itself: a file of a watched folder.
    DagId, "DAG", "dag"
);
id!(
    /// A volume: durable storage of a user.
    VolumeId, "volume", "vol"
);
id!(
    /// A repository: a remote bound to a volume of a user.
    RepositoryId, "repository", "repo"
);
id!(
    /// A bearer credential of the HTTP doors.
    CredentialId, "credential", "cred"
);
id!(
    /// An approval of a call by a person, asked for or given.
    ApprovalId, "approval", "apr"
);
id!(
    /// A remembered approval: of several calls.
    GrantId, "grant", "grant"
);
id!(
    /// An artifact: a result that is kept for its user.
    ArtifactId, "artifact", "art"
);
id!(
    /// A deferred call: one whose result is asked for later.
    DeferredId, "deferred call", "deferred"
);

impl SessionId {
    /// Id under which the daemon works for this session by itself. What it owns is refused to every client: no
    /// door opens or resumes a session of this id.
    #[must_use]
    pub fn stand_in(self) -> Self {
        self.with(Version::Custom)
    }

    /// True for a [`Self::stand_in`].
    pub fn is_stand_in(self) -> bool {
        self.0.get_version() == Some(Version::Custom)
    }

    /// Session that a stand-in works for; of any other the session itself.
    #[must_use]
    pub fn principal(self) -> Self {
        if self.is_stand_in() { self.with(Version::SortRand) } else { self }
    }

    fn with(self, version: Version) -> Self {
        Self(Builder::from_bytes(self.0.into_bytes()).with_version(version).into_uuid())
    }
}

impl ExecutionId {
    /// Id of an execution that a run orders, by a number of the run's that is below 2^62: the same whenever it is asked
    /// for. No other run has it.
    #[must_use]
    pub fn of_run(run: RunId, number: u64) -> Self {
        // The bits above say which kind of UUID it is, and when the run began.
        Self(Uuid::from_u128(run.0.as_u128() ^ u128::from(number & (u64::MAX >> 2))))
    }
}

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
    fn a_stand_in_is_another_session_that_leads_back_to_its_own() {
        let session = SessionId::new();
        let stand_in = session.stand_in();
        assert!(stand_in != session && stand_in.is_stand_in() && !session.is_stand_in());
        assert_eq!([session.principal(), stand_in.principal()], [session; 2]);
        assert_eq!(stand_in.stand_in(), stand_in);
    }

    #[test]
    fn an_id_reads_back_as_itself_and_only_as_its_kind() {
        let id = WorkspaceId::new();
        assert_eq!(id.to_string().parse::<WorkspaceId>(), Ok(id));
        assert!(id.to_string().parse::<SessionId>().is_err());
        let json = serde_json::to_string(&id).expect("serialises");
        assert_eq!(serde_json::from_str::<WorkspaceId>(&json).expect("reads back"), id);
        assert_eq!(format!("ws_{}", id.uuid().simple()), id.to_string());
        let schema = schemars::schema_for!(WorkspaceId);
        assert_eq!(schema.as_value()["pattern"], "^ws_[0-9a-f]{32}$");
    }

    #[test]
    fn near_misses_are_refused() {
        let id = WorkspaceId::new().to_string();
        for text in [&id[3..], &id[..34], &id.to_uppercase(), "ws_", "", "ws_zz"] {
            assert!(text.parse::<WorkspaceId>().is_err(), "{text}");
        }
    }

    #[test]
    fn ids_sort_by_age() {
        let older = CallId::new();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(older < CallId::new());
    }

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
