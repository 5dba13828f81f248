//! Actor framework that every other crate stands on: ids, errors, the declaration of a tool, the
//! context of a call, mailboxes, supervision. Small and dull; depends on no other crate of the
//! workspace.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod call;
pub mod census;
pub mod children;
pub mod code;
pub mod codes;
pub mod entity;
pub mod error;
pub mod fault;
pub mod ids;
pub mod mailbox;
pub mod ports;
pub mod receipt;
pub mod resources;
pub mod responder;
pub mod room;
pub mod secret;
pub mod serve;
pub mod service;
pub mod shared_pool;
pub mod supervise;
pub mod tool;
pub mod trace;
pub mod user;
pub mod view;
pub mod workers;

pub use call::{AdmissionPermit, CallCx, Door, Progress, ProgressUpdate};
pub use census::{ActorRow, ActorStatus, Census};
pub use children::{ChildEnd, Children};
pub use code::ErrorCode;
pub use entity::{Context, Entity, Fault};
pub use error::{Layer, ToolError};
pub use ids::{
    ApprovalId, ArtifactId, CallId, CredentialId, DeferredId, GrantId, IdError, JobId, LayerId,
    MessageId, RepositoryId, ScriptId, SessionId, SnapshotId, SwarmId, TeamId, VolumeId,
    WorkspaceId,
};
pub use mailbox::{ActorUnavailable, Address, AskError};
pub use receipt::{Receipt, ReceiptPad};
pub use resources::Resources;
pub use responder::Responder;
pub use room::{Room, Shortage};
pub use secret::SecretString;
pub use serve::{Owned, Reply, Target, ToolCall, ToolGroup};
pub use service::{Service, ServiceActor};
pub use shared_pool::{PoolFull, PoolPlace, SharedPool};
pub use supervise::{Backoff, GiveUp, Restart, RestartPolicy};
pub use tool::{Access, Addressing, Effect, RateClass, Risk, Tier, Tool, ToolInfo, ToolSpec};
pub use trace::TraceContext;
pub use user::User;
