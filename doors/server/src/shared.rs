//! State of the daemon that every door needs.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwap;
use hivekeep_audit::AuditLog;
use hivekeep_config::{Config, DaemonFolders};
use hivekeep_kernel::{Census, Door, SessionId, User};
use hivekeep_policy::PolicyDecision;
use hivekeep_registry::{
    Catalogue, DecisionRequest, DeferredCalls, Dispatcher, SessionsHandle, SharedCatalogue,
    ToolView,
};
use hivekeep_runtime::{Ports, documents::Documents, names::Names};
use hivekeep_store::Journal;
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};

use super::{
    incoming::MessageRoom,
    listing::{ListingScope, ToolListing},
    parents::ClientParents,
    prompts::PromptTemplate,
};
use crate::credentials::Credentials;

/// Order to stop the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopOrder {
    /// Go on.
    None,
    /// Stop; `workspaces` overrides the configuration.
    Stop {
        /// True when workspaces stop too.
        workspaces: Option<bool>,
    },
}

/// The daemon, as its doors see it.
pub struct DaemonServices {
    /// The configuration.
    pub config: Config,
    /// The daemon's folders.
    pub folders: DaemonFolders,
    /// The catalogue of tools.
    pub tools: Arc<SharedCatalogue>,
    /// The one way to call it.
    pub dispatcher: Dispatcher,
    /// Calls that outlive their clients.
    pub deferred: DeferredCalls,
    /// The sessions.
    pub sessions: SessionsHandle,
    /// Credentials of the HTTP doors.
    pub credentials: Credentials,
    /// Ports that families offer.
    pub ports: Ports,
    /// Documents of families, for clients to read by URI.
    pub documents: Vec<Arc<dyn Documents>>,
    /// Names of things, to complete what a person types.
    pub names: Vec<Arc<dyn Names>>,
    /// Prompts that clients offer to people.
    pub prompts: &'static [PromptTemplate],
    /// Status of the actors.
    pub census: Census,
    /// The journal, for its events and numbers.
    pub journal: Journal,
    /// The audit log, where one is kept.
    pub audit: Option<AuditLog>,
    /// Time at which the daemon began to serve.
    pub since: Instant,
    /// Room for long messages.
    pub incoming: MessageRoom,
    /// Processes that started the clients of the socket.
    pub parents: ClientParents,
    /// Connections to the socket now.
    pub connections: AtomicUsize,
    /// URL of MCP over HTTP, once it is open.
    pub mcp_http: OnceLock<String>,
    /// URL of the HTTP API, once it is open.
    pub http_api: OnceLock<String>,
    /// URL of the door for E2B's SDKs, once it is open.
    pub e2b: OnceLock<String>,
    /// How the URLs for ports look, once they are served.
    pub port_urls: OnceLock<String>,
    /// Permit for a backup: one is made at a time.
    pub backups: Arc<Semaphore>,
    /// Asks the daemon to stop.
    pub stop: watch::Sender<StopOrder>,
    /// The list of the usual view, made once for as long as the tools are the same.
    pub everything: ArcSwap<ToolListing>,
}

impl DaemonServices {
    /// The tools as they are now.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.tools.now()
    }

    /// View of a client that asks for nothing of its own.
    pub fn usual_view(&self) -> ToolView {
        usual_view(&self.config)
    }

    /// The tools of a view as MCP lists them, within a scope.
    pub fn listing(&self, view: &ToolView, scope: &ListingScope) -> Arc<ToolListing> {
        let usual = scope.denied.is_empty() && *view == self.usual_view();
        let last = self.everything.load_full();
        if usual && last.is_of(scope) {
            return last;
        }
        let listing = Arc::new(ToolListing::of(&self.catalogue(), view, scope));
        if usual {
            self.everything.store(listing.clone());
        }
        listing
    }

    /// Scope of a session's listing, or of a caller that has none yet.
    pub fn scope(
        &self,
        view: &ToolView,
        (session, user, door): (Option<SessionId>, User, Door),
        loaded: BTreeSet<String>,
    ) -> ListingScope {
        let catalogue = self.catalogue();
        let denied = catalogue.visible(view).filter(|tool| {
            let request = DecisionRequest { session, user, door, view, tool, args: None };
            let found = self.dispatcher.decision(&request);
            found.is_ok_and(|found| found.outcome == PolicyDecision::Denied)
        });
        let denied = denied.map(|entry| entry.name()).collect();
        ListingScope { loaded, denied, generation: catalogue.generation() }
    }

    /// Counts a connection for as long as the guard lives.
    pub fn connected(self: &Arc<Self>) -> ConnectionCount {
        self.connections.fetch_add(1, Relaxed);
        ConnectionCount(self.clone())
    }
}

/// View of a client that asks for nothing of its own, by the configuration.
pub fn usual_view(config: &Config) -> ToolView {
    ToolView { output_schemas: config.registry.listing.output_schemas, ..ToolView::default() }
}

/// See [`DaemonServices::connected`].
pub struct ConnectionCount(Arc<DaemonServices>);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}
