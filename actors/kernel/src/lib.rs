//! What every actor of the house stands on: ids, errors, the declaration of a
//! tool, the context of a call, mailboxes, supervision. Small and dull; it knows
//! no other crate of the house.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod call;
pub mod census;
pub mod entity;
pub mod error;
pub mod fault;
pub mod ids;
pub mod mailbox;
pub mod nursery;
pub mod ports;
pub mod receipt;
pub mod resources;
pub mod room;
pub mod serve;
pub mod service;
pub mod supervise;
pub mod tool;
pub mod workers;

pub use call::{CallCx, Door, Progress, ProgressUpdate, Slot};
pub use census::{ActorRow, Census, Probe};
pub use entity::{Entity, Fault, Me};
pub use error::{Layer, ToolError};
pub use ids::{
    CallId, IdError, JobId, LayerId, MessageId, SessionId, SnapshotId, SwarmId, TeamId, WorkspaceId,
};
pub use mailbox::{Address, AskError, Unavailable};
pub use nursery::{ChildNews, Nursery};
pub use receipt::{Receipt, ReceiptPad};
pub use resources::Resources;
pub use room::{Room, Shortage};
pub use serve::{Owned, Reply, Target, ToolCall, ToolGroup};
pub use service::{Service, ServiceActor};
pub use supervise::{Backoff, GiveUp, Policy, Restart};
pub use tool::{Access, Addressing, Effect, RateClass, Risk, Spec, Tier, Tool, ToolInfo};
