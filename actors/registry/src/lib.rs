//! The only way to an actor from outside.
//!
//! A front door opens a session ([`SessionsHandle`]) and hands each call to the
//! [`Dispatcher`], which passes it through one fixed order of layers and on to
//! the [`Registry`] actor, which admits it to the mailbox of its target.
//!
//! ```text
//! door ─▶ Dispatcher: authenticate ─ resolve ─ decide ─ validate ─ approve ─ rate ─┐
//!                                                                    route ◀───────┘
//!                                                                      │
//!                     Registry actor: admission (in flight, queued) ───┴─▶ target's mailbox
//!                                                                             │
//! door ◀─ Dispatcher: audit ◀─┬─ success: limit ◀──────────────────────────────┤
//!                             └─ error: redact ◀──────────────────────────────┘
//! ```
//!
//! Reading order: `dispatch.rs` (the order), `registry/admission.rs` (admission),
//! `sessions.rs` (sessions and quotas), `deferred.rs` (calls that outlive their client), `catalogue.rs`
//! (what there is to call).
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod catalogue;
mod child_sessions;
pub mod codes;
pub mod deferred;
pub mod dispatch;
pub mod options;
pub mod registry;
pub mod sessions;
pub mod stats;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
mod tiers;

pub use catalogue::{
    Catalogue, CatalogueError, NameStyle, SharedCatalogue, SmallListing, ToolEntry, ToolOrigin,
    ToolView, docs, kind, mcp_listing, mcp_tool,
};
pub use child_sessions::DispatchedChildren;
pub use deferred::{DeferredCalls, DeferredOutcome, DeferredStatus, DeferredView};
pub use dispatch::{
    ApprovalRoute, CallOutcome, CallRequest, DecisionRequest, DecisionView, DispatchParts,
    Dispatcher, RedactedPath, RedactionReason, Redactor, Routes, approval_required, client_answer,
    client_question,
};
pub use hivekeep_policy::{Policy, Question, Ruling, Verdict};
pub use options::{
    AdmissionOptions, DeferredOptions, HostOptions, Options, QuotaOptions, RateOptions,
    RedactionOptions, SessionOptions, UserOptions,
};
pub use registry::{Registry, RegistryArgs, TargetRow};
pub use sessions::{
    Attachment, EndReason, OpenSession, SessionRow, SessionState, Sessions, SessionsArgs,
    SessionsHandle, User, host_room,
};
pub use stats::ToolRow;
pub use tiers::{CallLimit, LimitPeriod, QuotaTier};
