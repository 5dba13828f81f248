//! Options of swarms, and the state that the actors of this crate share; it outlives their restarts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use hivekeep_kernel::{Census, SwarmId, ToolError, lock};
use hivekeep_ports::{SessionQuotas, Tasks};
use hivekeep_runtime::{Daemon, FamilyOptions, ToolClient, WaiterLimit, Waiters, saga::SagaHandle};
use hivekeep_store::{Events, Journal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{
    swarm::{SwarmSaga, state::LEAST_RECORD_KB},
    tools::RESULT_BUDGET_BYTES,
};

/// Section `[swarm]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Most swarms that run at a time. One more is refused.
    #[schemars(range(min = 1))]
    pub max_running: usize,
    /// Most swarms that are over and kept for `swarm_status`.
    // Each may have megabytes of output.
    #[schemars(range(max = 1000))]
    pub kept: usize,
    /// Days that a swarm is kept for `swarm_status` after its end.
    pub kept_days: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_running: 8, kept: 100, kept_days: 7 }
    }
}

impl FamilyOptions for Options {
    /// Bounds of the store that are too small: a swarm whose record or snapshot exceeds them could
    /// never be written, and would never end.
    fn store_problems(&self, store: &hivekeep_store::Options) -> Vec<(&'static str, String)> {
        let least = [
            ("max_record_kb", store.max_record_kb, LEAST_RECORD_KB),
            ("max_snapshot_kb", store.max_snapshot_kb, RESULT_BUDGET_BYTES / 1024),
        ];
        let wrong = least.into_iter().filter(|(_, value, least)| value < least);
        wrong
            .map(|(key, _, least)| (key, format!("must be at least {least}, for swarms")))
            .collect()
    }
}

/// State that all actors of this crate share.
pub struct SwarmShared {
    pub(crate) options: Options,
    pub(crate) journal: Journal,
    pub(crate) events: Events,
    pub(crate) sessions: Arc<dyn SessionQuotas>,
    pub(crate) census: Census,
    pub(crate) closing: CancellationToken,
    pub(crate) tasks: Arc<dyn Tasks>,
    /// Calls that wait for the end of a swarm.
    pub(crate) waiters: Waiters,
    pub(crate) tools: ToolClient<SwarmId>,
    /// Handles of swarms that have an actor. Never locked across an await.
    handles: Mutex<HashMap<SwarmId, SagaHandle<SwarmSaga>>>,
}

impl SwarmShared {
    /// Shares what the daemon brings.
    ///
    /// # Errors
    /// When a port that swarms need is not offered.
    pub(crate) fn new(daemon: &Daemon, options: Options) -> Result<Arc<Self>, ToolError> {
        let Daemon { journal, census, sessions, tools, ports, closing, .. } = daemon.clone();
        Ok(Arc::new(Self {
            options,
            events: journal.events(),
            journal,
            sessions,
            census,
            closing,
            tasks: ports.need()?,
            waiters: ports.need::<WaiterLimit>()?.of("swarm"),
            tools: ToolClient::new(tools),
            handles: Mutex::default(),
        }))
    }

    /// Keeps a handle for the next incarnation of the manager.
    pub(crate) fn keep_handle(&self, id: SwarmId, handle: SagaHandle<SwarmSaga>) {
        lock(&self.handles).insert(id, handle);
    }

    pub(crate) fn drop_handle(&self, id: SwarmId) {
        lock(&self.handles).remove(&id);
    }

    /// Takes all handles of an incarnation that is gone.
    pub(crate) fn take_handles(&self) -> Vec<SagaHandle<SwarmSaga>> {
        lock(&self.handles).drain().map(|(_, handle)| handle).collect()
    }
}
