//! Shared state of the actors of this crate; it outlives their restarts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hivekeep_kernel::{
    Census, SwarmId, ToolError,
    ports::{SessionQuotas, Tasks},
};
use hivekeep_runtime::{Daemon, ToolClient, WaiterLimit, Waiters, saga::SagaHandle};
use hivekeep_store::{Events, Journal};
use tokio_util::sync::CancellationToken;

use crate::{Options, swarm::SwarmSaga};

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
        self.handles().insert(id, handle);
    }

    pub(crate) fn drop_handle(&self, id: SwarmId) {
        self.handles().remove(&id);
    }

    /// Takes all handles of an incarnation that is gone.
    pub(crate) fn take_handles(&self) -> Vec<SagaHandle<SwarmSaga>> {
        self.handles().drain().map(|(_, handle)| handle).collect()
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<SwarmId, SagaHandle<SwarmSaga>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
