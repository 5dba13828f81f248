//! MCP client of a source: what it declares of itself, and what it does with what a server sends unasked.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use hivekeep_kernel::Progress;
use rmcp::{
    ClientHandler, RoleClient,
    model::{ClientConfig, Implementation, ProgressNotificationParam, ProgressToken},
    service::{NotificationContext, Peer},
};
use tokio::sync::Notify;

/// Longest message of a progress report.
const PROGRESS_CHARS: usize = 200;

/// State of a connection that its calls and the reconnecting loop share.
#[derive(Debug, Default)]
pub(crate) struct SourceTraffic {
    /// Outlets of the calls that run, by their tokens.
    progress: Mutex<HashMap<ProgressToken, Progress>>,
    running: AtomicUsize,
    /// The server says that its tools have changed.
    pub(crate) list_changed: Notify,
    /// A call got no answer in time.
    pub(crate) doubted: Notify,
}

impl SourceTraffic {
    fn progress(&self) -> std::sync::MutexGuard<'_, HashMap<ProgressToken, Progress>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True while a call runs.
    pub(crate) fn busy(&self) -> bool {
        self.running.load(Relaxed) > 0
    }

    /// Counts a call and forwards its progress for as long as the guard lives.
    pub(crate) fn begin(self: &Arc<Self>, token: ProgressToken, outlet: Progress) -> CallGuard {
        self.running.fetch_add(1, Relaxed);
        self.progress().insert(token.clone(), outlet);
        CallGuard { traffic: self.clone(), token }
    }
}

/// See [`SourceTraffic::begin`].
pub(crate) struct CallGuard {
    traffic: Arc<SourceTraffic>,
    token: ProgressToken,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.traffic.running.fetch_sub(1, Relaxed);
        self.traffic.progress().remove(&self.token);
    }
}

/// Connection that calls are made over.
#[derive(Debug)]
pub(crate) struct SourceConnection {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) traffic: Arc<SourceTraffic>,
}

/// Handler of what a server sends. It offers nothing: no sampling, no roots, no elicitation, so that a
/// server has no way to a session but the answers to its calls.
#[derive(Debug, Clone)]
pub(crate) struct Handler(pub(crate) Arc<SourceTraffic>);

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut config = ClientConfig::default();
        config.client_info = Implementation::new("hivekeep", env!("CARGO_PKG_VERSION"));
        config
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let outlet = self.0.progress().get(&params.progress_token).cloned();
        if let Some(outlet) = outlet {
            let message = params.message.unwrap_or_default();
            let message: String = message.chars().take(PROGRESS_CHARS).collect();
            outlet.report(params.progress, params.total, message);
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.list_changed.notify_one();
    }
}
