//! Actor framework that every other crate stands on: ids, errors, the declaration of a tool, the
//! context of a call, mailboxes, supervision. Small and dull; depends on no other crate of the
//! workspace.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod call;
pub mod census;
pub mod children;
pub mod codes;
pub mod entity;
pub mod error;
pub mod fault;
pub mod form;
pub mod ids;
pub mod mailbox;
pub mod prompt;
pub mod reservation;
pub mod resources;
pub mod secret;
pub mod serve;
pub mod shared_pool;
pub mod supervise;
pub mod tool;
pub mod trace;

pub use call::{
    AdmissionPermit, CallCx, Door, EffectKey, Progress, ProgressUpdate, Receipt, ReceiptPad,
    Responder,
};
pub use census::{ActorRow, ActorStatus, Census};
pub use children::{ChildEnd, Children};
pub use entity::{Context, Entity, Fault};
pub use error::{ErrorCode, Layer, ToolError};
pub use form::{FieldKind, FieldOption, FormField, form_schema, form_takes};
pub use ids::{
    AgentId, ApprovalId, ArtifactId, CallId, CredentialId, DagId, DeferredId, ExecutionId, GrantId,
    IdError, JobId, LayerId, MessageId, RepositoryId, RunId, ScriptId, SessionId, SnapshotId,
    SwarmId, TeamId, User, VolumeId, WorkflowId, WorkspaceId,
};
pub use mailbox::{ActorUnavailable, Address, AskError};
pub use prompt::{ClientPrompt, UserQuestion, UserReply};
pub use reservation::{Hold, Reservation, SessionQuotas, Standing, session_ended};
pub use resources::{Resources, Room, Shortage};
pub use secret::SecretString;
pub use serve::{Owned, Reply, Service, ServiceActor, Target, ToolCall, ToolGroup};
pub use shared_pool::{PoolFull, PoolPlace, SharedPool};
pub use supervise::{Backoff, GiveUp, Restart, RestartPolicy};
pub use tool::{Access, Addressing, Effect, RateClass, Risk, Tier, Tool, ToolInfo, ToolSpec};
pub use trace::TraceContext;

/// Locks a mutex, also after a panic under its lock: what it guards is whole between any two statements.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Views of the catalogue.
pub mod view {
    pub use crate::tool::{NameStyle, SmallListing, ToolView, same_family};
}
/// Work beside the mailbox.
pub mod workers {
    pub use crate::entity::Workers;
}
