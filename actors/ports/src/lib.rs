//! Ports: small traits through which actors call each other without depending on each other's
//! crates. The crate that owns the thing implements the trait; boot wires it. Ports of one trait are here.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod agents;
mod chats;
mod child_sessions;
mod commands;
mod executions;
mod files;
mod guest_http;
mod mails;
mod model_relay;
mod models;
mod network;
mod outbound;
mod people;
mod questions;
mod sessions;
mod tasks;
mod tools;
mod volumes;
mod webhooks;

use std::net::SocketAddr;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use hivekeep_kernel::{ScriptId, SessionId, ToolError};

pub use agents::{
    ExecutionOrder, ExecutionResult, Executions, OrderedAgent, OrderedJudge, OrderedProgram,
    OutputScore,
};
pub use chats::{
    ChatEvent, ChatEvents, ChatMessage, ChatPlan, ChatRole, ChatSession, ChatStatus, ChatStep,
    ChatStepStatus, Chats, PersonPages, RunFeeds,
};
pub use child_sessions::{
    ALL_TOOLS, ChildAnswer, ChildCall, ChildSession, ChildSessions, ChildTool,
};
pub use commands::{
    CommandEnd, CommandLimits, CommandRunner, CommandSpec, CommandStream, EntryPoint, PlaceProcess,
    ProcessOutput, ProcessSpan, ProcessSpec, ProcessState, ProcessWindow, TerminalSize, text_part,
};
pub use executions::{
    ExecutionFileLinks, ExecutionFiles, FilePart, MOUNTED_PLACE, OwnWorkspace, OwnWorkspaces,
    OwnedSnapshot, SESSION_PLACE, WorkspaceForks, WorkspaceStandstill, own_workspace_name,
};
pub use files::{
    FileChange, FileChangeKind, FileChanges, FoundWorkspace, GuestOperation, LocatedPlace,
    PlaceFiles, PlaceFolder, PlaceFolders, PlaceWorkspace, Places, WatchRequest, WorkspaceFiles,
    WorkspaceReadiness,
};
pub use guest_http::{GuestHttp, GuestHttpAnswer, GuestHttpHandler, GuestHttpRequest};
pub use hivekeep_kernel::{
    ClientPrompt, FieldKind, FieldOption, FormField, Hold, Reservation, SessionQuotas, Standing,
    UserQuestion, UserReply, form_schema, form_takes,
};
pub use mails::{Mail, Mails};
pub use model_relay::{
    ModelApi, ModelRelay, RELAY_PIECES_AHEAD, RelayEnd, RelayPiece, RelayRequest,
};
pub use models::{
    ConfiguredModel, DELTAS_AHEAD, EmbedRequest, Embeddings, FailedModel, LOST_MICRO_USD,
    LOST_TOKENS, ModelAnswer, ModelDelta, ModelMessage, ModelRequest, ModelSource, ModelStop,
    ModelStream, ModelTool, ModelToolCall, ModelToolChoice, ModelUsage, ModelUse, Models,
};
pub use network::{
    BadGroup, ByteStream, ForwardedPort, GroupChange, InterfaceSettings, Netdev, Network,
    NetworkGroup, NetworkMode, NetworkRequest, NetworkView, PortUrl, PortUrlRequest, PortUrls,
    ProgramConnections, ReachPolicy, ReachRules, Transport, WorkspacePorts,
};
pub use outbound::{OutboundAnswer, OutboundRequest, OutboundRequests};
pub use people::{ConversationMode, People, UserOutcome};
pub use questions::{QuestionState, StandingQuestion, StandingQuestions};
pub use sessions::{DefaultSize, KnownUsers, SessionToolsets, SizeBound, WorkspaceBounds};
pub use tasks::{
    OldestWaiting, TASK_POLL, TaskAssignment, TaskBoard, TaskCapture, TaskHints, TaskOutcome,
    TaskOutput, TaskOutputs, TaskPage, TaskResult, TaskSpan, TaskState, TaskTaken, TaskText,
    TaskWindow, Tasks, WaitingMessages, WaitingSummary,
};
pub use tools::{
    ForeignSource, InternalCall, KeptResult, LargeResult, LateTools, ResultKeeper, SourceState,
    SourceTool, ToolPublisher, ToolSearch, Tools,
};
pub use volumes::{
    AttachedVolume, MountSource, MountedFolder, VolumeFiles, VolumeRequest, Volumes,
};
pub use webhooks::{WebhookRefusal, WebhookRequest, WebhookTarget, Webhooks};

/// Credentials that the operator configured for git.
pub trait GitCredentials: Send + Sync {
    /// Name of the credential that is used for a remote where a call brings none: `host` of its entry
    /// in `git.credentials`.
    fn used_for(&self, url: &str) -> Option<String>;
}

/// Listener of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubListener {
    /// Address that it is bound to.
    pub address: SocketAddr,
    /// URL that clients connect to.
    pub url: String,
    /// False if it ran before.
    pub started: bool,
}

/// Clients of the hub at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HubCounts {
    /// Open connections, with subscriptions or without.
    pub clients: usize,
    /// Channels with at least one subscriber.
    pub channels: usize,
}

/// Hub over WebSocket.
#[async_trait]
pub trait HubDoor: Send + Sync {
    /// Listens at an address, or tells where it listens already.
    ///
    /// # Errors
    /// When the address cannot be bound, or TLS is not usable.
    async fn start(&self, address: SocketAddr) -> Result<HubListener, ToolError>;

    /// Counts clients and channels.
    fn counts(&self) -> HubCounts;
}

/// Container images of this host.
pub trait ImagePresence: Send + Sync {
    /// True if the image of a reference can be booted without a download, false if it cannot;
    /// `None` where that is not known.
    fn is_present(&self, reference: &str) -> Option<bool>;
}

/// Problem of a manifest, at the place in its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ManifestProblem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Path of the value, as `steps[2].depends`; empty for the whole text.
    pub path: String,
    /// Problem in a sentence.
    pub message: String,
}

impl std::fmt::Display for ManifestProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { line, column, path, message } = self;
        match path.is_empty() {
            true => write!(f, "line {line}, column {column}: {message}"),
            false => write!(f, "line {line}, column {column}: {path}: {message}"),
        }
    }
}

/// Checks of manifests. They look at the text alone: that it is valid does not say that it can run.
pub trait ManifestCheck: Send + Sync {
    /// Problems of a DAG's YAML in the order of the text, bounded in number; none for a valid one.
    /// Bounded in time by the size of the text, but not quick: a caller runs it beside its mailbox.
    fn dag(&self, text: &str) -> Vec<ManifestProblem>;
}

/// Redactor of values.
pub trait ValueRedactor: Send + Sync {
    /// The value with credentials hidden: what is named like one whole, and what looks like one in any text.
    fn redact(&self, value: Value) -> Value;
}

/// A version of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptProgram {
    /// Id of the script, the same for all its versions.
    pub id: ScriptId,
    /// Number of the version, from 1.
    pub version: u64,
    /// Text of the version; the first line may name an interpreter.
    pub code: String,
}

/// Libraries of all users.
pub trait ScriptLibrary: Send + Sync {
    /// A script of the session's user, by its id or name; the newest version unless one is asked for.
    ///
    /// # Errors
    /// `script_not_found`, `script_version_not_found`, `session_ended`.
    fn program(
        &self,
        session: SessionId,
        id_or_name: &str,
        version: Option<u64>,
    ) -> Result<ScriptProgram, ToolError>;
}

/// Files that the daemon itself writes into the vault, where people and agents can read them. Paths
/// are relative to the vault's root, names joined by `/`. A file is a note or, below `teams/`, one
/// whose name ends in `.json`; other paths are refused, as they are for everybody.
#[async_trait]
pub trait Vault: Send + Sync {
    /// Writes a file whole, in turn with every other writer of it, and makes missing folders. On
    /// success the file is on the disk; on an error it is the old or the new one.
    ///
    /// # Errors
    /// `vault_disabled`, `vault_unavailable`, or the reason why it cannot be written.
    async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), ToolError>;

    /// Removes a file; false if there was none. Folders stay.
    ///
    /// # Errors
    /// See [`Vault::write`].
    async fn remove(&self, path: &str) -> Result<bool, ToolError>;

    /// Reads a file; `None` if there is none.
    ///
    /// # Errors
    /// `vault_disabled`, `vault_unavailable`, or the reason why it cannot be read.
    async fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ToolError>;

    /// Lists the files below a folder, at any depth, by path; empty for a missing folder.
    ///
    /// # Errors
    /// See [`Vault::read`].
    async fn list(&self, folder: &str) -> Result<Vec<String>, ToolError>;
}
