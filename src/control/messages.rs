//! Messages of the control door.

use std::{path::PathBuf, time::Duration};

use hivekeep_door_server::credentials::{CredentialRow, CredentialScope};
use hivekeep_kernel::{ArtifactId, SessionId, ToolError};
use hivekeep_metrics::MetricsWindow;
#[cfg(feature = "full")]
use hivekeep_team::Picture;
use hivekeep_workspace::backup::Contents;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ApprovalsMethod, PolicyMethod};

/// Requests that can be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "snake_case")]
pub enum ControlMethod {
    /// The daemon in a few words.
    Status {},
    /// The supervision tree: [`hivekeep_kernel::ActorRow`]s.
    Ps {},
    Sessions {},
    /// Ends a session; its workspaces become orphans.
    EndSession {
        session: SessionId,
    },
    /// Makes a credential for the HTTP doors: a [`CredentialMade`].
    CreateCredential {
        name: String,
        /// Access that the credential gives its owner.
        scope: CredentialScope,
    },
    /// Makes a credential for the webhooks of a DAG: a [`CredentialMade`].
    CreateWebhook {
        name: String,
        /// Name of the DAG, or its file as `PLACE:PATH`.
        dag: String,
    },
    /// The credentials that are not revoked: [`CredentialRow`]s.
    Credentials {},
    /// Revokes a credential: its [`CredentialRow`].
    RevokeCredential {
        name: String,
    },
    /// A tool call in the caller's durable session. Items are progress.
    Call {
        tool: String,
        /// The tool's input.
        #[serde(default)]
        args: Map<String, Value>,
        /// A time limit instead of the tool's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// A team with its members and inboxes: a [`TeamSnapshot`]. Whoever may run the daemon may look.
    #[cfg(feature = "full")]
    Team {
        name: String,
        /// Look at the team's machines, too: a call for each.
        #[serde(default)]
        machines: bool,
    },
    /// A line for each session for which messages wait, among those whose client was started by the
    /// nearest of these processes that started any.
    Waiting {
        /// Process ids, the nearest first.
        started_by: Vec<i32>,
    },
    /// Rules of the policy, and what it says to a call.
    Policy(PolicyMethod),
    /// Approvals by people.
    Approvals(ApprovalsMethod),
    /// The artifacts of all users, the newest first: `ArtifactInfo`s.
    Artifacts {},
    /// An artifact: its `ArtifactInfo` and then its text in parts, each an item.
    Artifact {
        artifact: ArtifactId,
    },
    /// Removes an artifact before it expires: its `ArtifactInfo`.
    RemoveArtifact {
        artifact: ArtifactId,
    },
    /// Counts of all metrics in a window: a `MetricsFound`.
    Metrics {
        since: MetricsWindow,
    },
    /// All metrics in a window, the oldest first: arrays of them, each an item.
    MetricsExport {
        since: MetricsWindow,
    },
    /// Events, each an item.
    Events {
        /// Number of the first event wanted; without it, events from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<u64>,
        /// Go on with new events after the past ones.
        #[serde(default)]
        follow: bool,
    },
    /// A copy of the journal, to be packed: an item, a [`BackupMade`]. It is there until the client
    /// leaves.
    Backup {
        /// Freeze the disks of the workspaces, too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        disks: bool,
    },
    /// An ordered stop. Answered when it has begun.
    Stop {
        /// True when the workspaces stop too; absent, the configuration decides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspaces: Option<bool>,
    },
}

/// A line of an answer. Items come first, then one result or error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyBody {
    /// An item, one of several.
    Item(Value),
    /// The end of a success.
    Result(Value),
    /// The end of a failure.
    Error(Box<ToolError>),
}

/// A credential that was just made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialMade {
    #[serde(flatten)]
    pub row: CredentialRow,
    /// The secret, which nobody can be shown again.
    pub token: String,
}

/// A copy of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupMade {
    /// The copy's folder, which the daemon's user can read.
    pub journal: PathBuf,
    /// The disks, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<Contents>,
}

/// A team at one moment.
#[cfg(feature = "full")]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TeamSnapshot {
    /// The last event before the look; what came after it may be in the picture already.
    pub seq: u64,
    /// The snapshot of the team.
    pub picture: Picture,
}

/// Size of the log folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFolderSize {
    /// Bytes that the log files take now.
    pub bytes: u64,
    /// `log_file_mb` for the current file and each of the `log_files_kept`.
    pub most_bytes: u64,
}

/// The daemon in a few words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatus {
    pub version: String,
    pub pid: u32,
    /// Time since it serves.
    pub uptime_ms: u64,
    pub rss_bytes: u64,
    pub socket: String,
    pub state_dir: String,
    pub log_file: String,
    /// Address of the HTTP door, when it is open.
    pub mcp_http: Option<String>,
    /// URL of the HTTP API, when it is open.
    #[serde(default)]
    pub http_api: Option<String>,
    /// URL of the door for E2B's SDKs, when it is open.
    #[serde(default)]
    pub e2b: Option<String>,
    /// How the URLs for ports look, when they are served.
    #[serde(default)]
    pub port_urls: Option<String>,
    /// Tools in the catalogue.
    pub tools: usize,
    /// Connections to the socket now.
    pub connections: usize,
    /// Actors in the tree.
    pub actors: usize,
    /// Actors that are not running as they should.
    pub troubled: Vec<String>,
    /// The journal's numbers.
    pub journal: Value,
    /// Size of the daemon's logs, and its bound.
    #[serde(default)]
    pub logs: LogFolderSize,
}

impl DaemonStatus {
    /// Time since it serves.
    pub fn uptime(&self) -> Duration {
        Duration::from_millis(self.uptime_ms)
    }
}
