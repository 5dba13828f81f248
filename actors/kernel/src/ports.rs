//! Ports: small traits through which actors call each other without depending on each other's
//! crates. The crate that owns the thing implements the trait; boot wires it.

mod commands;
mod form;
mod git;
mod hub;
mod images;
mod manifest;
mod models;
mod network;
mod people;
mod places;
mod port_urls;
mod redaction;
mod reservation;
mod results;
mod scripts;
mod sources;
mod tasks;
mod tool_search;
mod tools;
mod toolsets;
mod vault;
mod volume_files;
mod volumes;
mod waiting;
mod workspace_files;
mod workspace_ports;

use async_trait::async_trait;
use std::time::Duration;

pub use commands::{
    CommandEnd, CommandLimits, CommandRunner, CommandSpec, CommandStream, EntryPoint, PlaceProcess,
    ProcessOutput, ProcessSpan, ProcessSpec, ProcessState, ProcessWindow, TerminalSize, text_part,
};
pub use form::{FieldKind, FieldOption, FormField, form_schema, form_takes};
pub use git::GitCredentials;
pub use hub::{HubCounts, HubDoor, HubListener};
pub use images::ImagePresence;
pub use manifest::{ManifestCheck, ManifestProblem};
pub use models::{
    ConfiguredModel, DELTAS_AHEAD, EmbedRequest, Embeddings, FailedModel, ModelAnswer, ModelDelta,
    ModelMessage, ModelRequest, ModelSource, ModelStop, ModelStream, ModelTool, ModelToolCall,
    ModelToolChoice, ModelUsage, ModelUse, Models,
};
pub use network::{
    BadGroup, ForwardedPort, GroupChange, InterfaceSettings, Netdev, Network, NetworkGroup,
    NetworkMode, NetworkView, NetworkWish, ReachPolicy, ReachRules, Transport,
};
pub use people::{ClientPrompt, ConversationMode, People, UserOutcome, UserQuestion, UserReply};
pub use places::{LocatedPlace, PlaceFiles, PlaceFolder, PlaceFolders, PlaceWorkspace, Places};
pub use port_urls::{PortUrl, PortUrlWish, PortUrls};
pub use redaction::ValueRedactor;
pub use reservation::Reservation;
pub use results::{KeptResult, LargeResult, ResultKeeper};
pub use scripts::{ScriptLibrary, ScriptProgram};
pub use sources::{ForeignSource, SourceState, SourceTool, ToolPublisher};
pub use tasks::{
    TASK_POLL, TaskAssignment, TaskBoard, TaskCapture, TaskHints, TaskOutcome, TaskOutput,
    TaskOutputs, TaskPage, TaskResult, TaskSpan, TaskState, TaskTaken, TaskText, TaskWindow, Tasks,
};
pub use tool_search::ToolSearch;
pub use tools::{InternalCall, LateTools, Tools};
pub use toolsets::SessionToolsets;
pub use vault::Vault;
pub use volume_files::VolumeFiles;
pub use volumes::{AttachedVolume, MountSource, MountedFolder, VolumeWish, Volumes};
pub use waiting::{OldestWaiting, WaitingMessages, WaitingSummary};
pub use workspace_files::{
    FileChange, FileChangeKind, FileChanges, FoundWorkspace, GuestOperation, WatchWish,
    WorkspaceFiles, WorkspaceReadiness,
};
pub use workspace_ports::{ByteStream, WorkspacePorts};

use crate::{Resources, SessionId, ToolError, User};

/// State of a session that owns something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// True while a client is attached.
    pub attached: bool,
    /// Number of calls of the session that are running now. A session with one is live.
    pub calls_in_flight: u32,
    /// Time since the session last had a client attached or a call running.
    pub idle_for: Duration,
    /// True once the session is over; what it owned is orphaned.
    pub ended: bool,
}

/// Keep-alive guard: while it lives, the session does not end for want of a client and its things
/// cannot be taken over, as during a call in flight.
#[derive(Default)]
pub struct Hold(Option<Box<dyn std::any::Any + Send + Sync>>);

impl Hold {
    /// Guards as long as `held` lives.
    pub fn of(held: impl Send + Sync + 'static) -> Self {
        Self(Some(Box::new(held)))
    }

    /// True if a session is guarded; a session that is over is not.
    pub fn holds(&self) -> bool {
        self.0.is_some()
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Hold").field(&self.holds()).finish()
    }
}

/// Resources of a workspace made from the default image with default sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultSize(pub Resources);

/// Users of the HTTP doors, who are gone once their credential is revoked.
pub trait KnownUsers: Send + Sync {
    /// True unless the user's credential was revoked.
    fn knows(&self, user: User) -> bool;
}

/// Sessions and their quotas.
#[async_trait]
pub trait SessionQuotas: Send + Sync {
    /// Reserves quota before anything is made. Exact under concurrent calls.
    ///
    /// # Errors
    /// `quota_exceeded` or `host_full`, with what is used, wanted and allowed.
    async fn reserve(&self, session: SessionId, what: Resources) -> Result<(), ToolError>;

    /// Reserves what another session holds and will release once this succeeds; both together are
    /// counted once.
    ///
    /// # Errors
    /// See [`Self::reserve`].
    async fn take_over(
        &self,
        by: SessionId,
        from: Option<SessionId>,
        what: Resources,
    ) -> Result<(), ToolError> {
        let _ = from;
        self.reserve(by, what).await
    }

    /// Gives back what was reserved.
    fn release(&self, session: SessionId, what: Resources);

    /// Counts what a session already owns, without a limit; used at start-up.
    fn restore(&self, session: SessionId, what: Resources);

    /// Guards a session for work that continues without a call. A session that is over is not
    /// guarded.
    fn hold(&self, session: SessionId) -> Hold;

    /// User of a session; `None` for a session that is over.
    fn user(&self, session: SessionId) -> Option<User>;

    /// User of a session, also of one that is over, as long as it is known.
    fn last_user(&self, session: SessionId) -> Option<User> {
        self.user(session)
    }

    /// True if a thing is of the user of a session: of the user who was `recorded` with it, or whoever its
    /// `owner` was where none is, as in records of earlier versions.
    fn is_of_user(
        &self,
        session: SessionId,
        recorded: Option<User>,
        owner: Option<SessionId>,
    ) -> bool {
        let user = recorded.or_else(|| self.last_user(owner?));
        owner == Some(session) || user.is_some() && user == self.user(session)
    }

    /// Number of things of a kind that a user may hold at a time by its tier; `None` for no limit
    /// beyond the family's own. Kinds are declared by families, which keep to them.
    fn allowance(&self, user: User, kind: &str) -> Option<u64> {
        let _ = (user, kind);
        None
    }

    /// State of a session.
    async fn standing(&self, session: SessionId) -> Standing;
}
