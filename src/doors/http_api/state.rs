//! State of the door, shared by its handlers.

use std::sync::Arc;

use hivekeep_kernel::SharedPool;
use hivekeep_ports::ToolSearch;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{held::HeldSessions, idempotency::IdempotencyKeys};
use crate::doors::{
    DaemonServices,
    http::{body::BodyGate, caller::LastingSessions, hosts::AllowedHosts},
};

/// State of the handlers.
pub(super) struct Api {
    pub(super) core: Arc<DaemonServices>,
    pub(super) hosts: AllowedHosts,
    pub(super) bodies: BodyGate,
    /// Requests at a time, streams of events not counted.
    pub(super) requests: SharedPool,
    /// Streams of events at a time.
    pub(super) streams: SharedPool,
    /// Sessions of callers that name none.
    pub(super) lasting: LastingSessions,
    /// Sessions that callers have named.
    pub(super) held: HeldSessions,
    pub(super) keys: IdempotencyKeys,
    /// Readers of the audit log at a time.
    pub(super) audit_readers: Arc<Semaphore>,
    pub(super) search: Option<Arc<dyn ToolSearch>>,
    /// Ends the streams when the door closes.
    pub(super) end: CancellationToken,
}
