//! Starting everything in order, and stopping it in the opposite one.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use hivekeep_audit::AuditLog;
use hivekeep_config::{Config, LoadedConfig, families};
use hivekeep_door_server::{
    DaemonServices, DoorError, StopOrder, credentials::Credentials, incoming::MessageRoom,
    listing::ToolListing, prompts::PROMPTS, usual_view,
};
use hivekeep_kernel::{ActorRow, Census, Fault, Room, ToolError, entity::spawn_root};
use hivekeep_policy::PolicyEngine;
use hivekeep_ports::{
    ChildSessions, KnownUsers, LateTools, People, SessionToolsets, StandingQuestions,
    ToolPublisher, ValueRedactor,
};
use hivekeep_registry::{
    DeferredCalls, DispatchParts, DispatchedChildren, Dispatcher, Redactor, RegistryArgs, Routes,
    SessionsArgs, SessionsHandle, SharedCatalogue, host_room, registry,
};
use hivekeep_runtime::{
    Daemon, Mounted, Ports, host_process, introspection::Introspection, log::LogError,
    tool_catalogue::ToolCatalogue,
};
use hivekeep_store::{Journal, Recovered};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    EXIT_ALREADY_RUNNING, EXIT_UNREADABLE_STATE,
    catalogue::ListedTools,
    folders::{self, DaemonLock, LockError},
    introspection::SelfKnowledge,
    logging::{self, LoggingError},
    open_doors::Doors,
    people::SessionPeople,
    root::{Args, Places, Root},
    service,
};
use crate::backup;

/// Time that the actors may take to start, re-attaching machines included.
const TREE_PATIENCE: Duration = Duration::from_secs(120);

/// The fate of the workspaces at an ordered stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Workspaces run on, and are taken up again at the next start.
    LeaveWorkspaces,
    /// Workspaces are stopped first.
    WithWorkspaces,
}

/// The reason why the daemon did not start, or ended otherwise than by order.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A folder is not there, not its own, or open to others.
    #[error(transparent)]
    Folder(#[from] folders::FolderError),
    /// Another daemon runs, or the lock is unusable.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// There is no log.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// There is half a state.
    #[error(
        "a restore into {} was cut short: run `hivekeep restore FILE` again, or remove its \
         folder restore.part for a fresh start", .0.display()
    )]
    RestoreCutShort(PathBuf),
    /// The journal does not open.
    #[error("the state in {}: {source}", dir.display())]
    State {
        /// The journal's folder.
        dir: PathBuf,
        /// The cause.
        source: hivekeep_store::Error,
    },
    /// The audit log does not open.
    #[error("the audit log: {0}")]
    Audit(#[from] hivekeep_audit::Error),
    /// The sessions, or the credentials, in the journal cannot be read.
    #[error(transparent)]
    Sessions(#[from] LogError),
    /// A family cannot be mounted.
    #[error("{family}: {}", .error.to_text())]
    Family {
        /// The family's section of the configuration.
        family: &'static str,
        /// The cause.
        error: Box<ToolError>,
    },
    /// A pattern of `registry.redaction` is none.
    #[error("registry.redaction.extra_patterns: {0}")]
    Redaction(String),
    /// The tree does not start.
    #[error("the supervision tree did not start: {0}")]
    Tree(String),
    /// The socket cannot be made.
    #[error("the socket {}: {source}", path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A door over HTTP does not open.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// The hub does not open.
    #[cfg(feature = "full")]
    #[error("hub: {0}")]
    Hub(String),
    /// The tree ended by itself.
    #[error("the supervision tree ended: {0}; a new start recovers from the journal")]
    TreeEnded(String),
    /// The runtime, a signal handler, a thread.
    #[error("{doing}: {source}")]
    Io {
        /// The step.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl Error {
    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        use hivekeep_store::Error::{TooNew, Unreadable};
        match self {
            Self::State { source: Unreadable { .. } | TooNew { .. }, .. }
            | Self::Sessions(
                LogError::Unreadable { .. }
                | LogError::Journal { source: Unreadable { .. } | TooNew { .. }, .. },
            ) => EXIT_UNREADABLE_STATE,
            Self::Lock(LockError::Held { .. }) => EXIT_ALREADY_RUNNING,
            _ => 1,
        }
    }
}

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// When it cannot start, or ends otherwise than by order.
pub fn run(loaded: LoadedConfig, stopping: StopMode) -> Result<(), Error> {
    folders::make(&loaded.folders)?;
    let _lock = DaemonLock::take(&loaded.folders.lock_file())?;
    let _logging = logging::start(&loaded)?;
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(loaded.config.daemon.workers())
        .enable_all()
        .build()
        .map_err(|source| Error::Io { doing: "starting the runtime", source })?;
    let outcome = runtime.block_on(live(loaded, stopping));
    // Blocking work that hangs, on a dead disk for example, holds nothing up.
    runtime.shutdown_timeout(Duration::from_secs(2));
    match &outcome {
        Ok(()) => tracing::info!("stopped"),
        Err(error) => tracing::error!(%error, "ended"),
    }
    outcome
}

/// Descriptors for as many clients and machines as the host allows.
fn raise_open_files() {
    match hivekeep_machine::raise_open_files() {
        Ok([found, limit]) => {
            tracing::debug!(?found, ?limit, "open files: raised to the hard limit")
        }
        Err(error) => tracing::warn!(%error, "open files: the limit stays"),
    }
}

async fn live(loaded: LoadedConfig, stopping: StopMode) -> Result<(), Error> {
    let (stop, mut stopped) = watch::channel(StopOrder::None);
    service::watch_signals(stop.clone())
        .map_err(|source| Error::Io { doing: "watching for signals", source })?;
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, pid = std::process::id(), config = ?loaded.file, "starting");
    for old_name in &loaded.renamed {
        tracing::warn!("{old_name}");
    }

    end_orphans(loaded.folders.state.clone()).await?;
    let journal = open_journal(&loaded).await?;
    let audit = open_audit(&loaded).await?;
    let tree = Tree::grow(&loaded, &journal).await?;
    let credentials = Credentials::open(&journal).await?;
    let log = (journal.clone(), audit.clone());
    let core = tree.core(loaded, log, credentials, stop)?;
    let mut tree = tree.awake().await?;
    let doors = Doors::open(core.clone(), tree.places.clone()).await?;
    tracing::info!(socket = %core.folders.socket.display(), "serving");

    let ended_by_itself = tokio::select! {
        _ = stopped.wait_for(|order| *order != StopOrder::None) => false,
        _ = &mut tree.ended => true,
    };
    let order = *stopped.borrow();
    let with_workspaces = match order {
        StopOrder::Stop { workspaces: Some(workspaces) } => workspaces,
        _ => stopping == StopMode::WithWorkspaces,
    };
    tree.closing.cancel();
    doors.close(ended_by_itself).await;
    let reason = tree.last_error();
    tree.fell(with_workspaces && !ended_by_itself).await;
    drop(core);
    let closed = tokio::time::timeout(Duration::from_secs(30), journal.close()).await;
    tracing::info!(?closed, "the journal is closed");
    if let Some(audit) = audit {
        audit.note("daemon.stopped", &serde_json::json!({ "by_itself": ended_by_itself }));
        blocking(move || audit.close()).await?;
    }
    match ended_by_itself {
        true => Err(Error::TreeEnded(reason.unwrap_or_else(|| "see the log".to_owned()))),
        false => Ok(()),
    }
}

/// Ends processes of the host that a daemon which was killed left.
async fn end_orphans(state: PathBuf) -> Result<(), Error> {
    match blocking(move || host_process::end_orphans(&state)).await? {
        Ok(0) => {}
        Ok(ended) => tracing::warn!(ended, "processes that the last daemon left were ended"),
        Err(error) => tracing::warn!(%error, "processes that the last daemon left"),
    }
    Ok(())
}

async fn open_journal(loaded: &LoadedConfig) -> Result<Journal, Error> {
    let (state, dir) = (loaded.folders.state.clone(), loaded.folders.journal());
    if backup::cut_short(&state, &dir) {
        return Err(Error::RestoreCutShort(state));
    }
    let left = move || {
        backup::sweep(&state)?;
        backup::end_restore(&state).map_err(io::Error::other)
    };
    blocking(left).await?.map_err(|source| Error::Io {
        doing: "removing what a backup or a restore left",
        source,
    })?;
    let options = hivekeep_store::Options { dir: dir.clone(), ..loaded.config.store.clone() };
    let (journal, recovered) = blocking(move || Journal::open(options))
        .await?
        .map_err(|source| Error::State { dir, source })?;
    let Recovered { created, streams, records, unacknowledged_commit, .. } = recovered;
    tracing::info!(created, streams, records, unacknowledged_commit, "the journal is open");
    Ok(journal)
}

async fn open_audit(loaded: &LoadedConfig) -> Result<Option<AuditLog>, Error> {
    let options = loaded.config.audit.clone();
    if !options.enabled {
        return Ok(None);
    }
    let (state, run) = (loaded.folders.audit(), loaded.folders.audit_tail());
    let log = blocking(move || AuditLog::open(&state, &run, &options)).await??;
    tracing::info!(head = %log.head(), "the audit log is open");
    log.note("daemon.started", &serde_json::json!({ "version": env!("CARGO_PKG_VERSION") }));
    Ok(Some(log))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::Io { doing: "a start-up step", source: io::Error::other(error) })
}

async fn sessions(
    LoadedConfig { config, folders, .. }: &LoadedConfig,
    journal: &Journal,
    census: &Census,
    places: &Places,
) -> Result<(SessionsHandle, SessionsArgs), Error> {
    let (options, journal) = (config.registry.clone(), journal.clone());
    let (census, supervisor) = (census.clone(), places.sessions.clone());
    let disks = folders.state.clone();
    let restore = move || {
        let room = host_room(&options.host, &disks);
        SessionsHandle::restore(&options, room, journal, census, supervisor)
    };
    Ok(blocking(restore).await??)
}

fn redactor(config: &Config) -> Result<Redactor, Error> {
    Redactor::new(&config.registry.redaction).map_err(|error| Error::Redaction(error.to_string()))
}

/// The supervision tree and what is wired to it.
struct Tree {
    places: Places,
    census: Census,
    sessions: SessionsHandle,
    catalogue: Arc<SharedCatalogue>,
    policy: PolicyEngine,
    deferred: DeferredCalls,
    /// For actors that call other actors' tools; wired once there is a dispatcher.
    tools: LateTools,
    /// For actors whose work has sessions of its own; wired like `tools`.
    children: Arc<DispatchedChildren>,
    /// Ports that families offer, to the doors too.
    ports: Ports,
    families: Vec<Mounted>,
    /// Fires before anything is stopped.
    closing: CancellationToken,
    cell: ractor::ActorCell,
    ended: tokio::task::JoinHandle<()>,
}

impl Tree {
    /// Mounts the families and spawns the root.
    async fn grow(loaded: &LoadedConfig, journal: &Journal) -> Result<Self, Error> {
        let config = &loaded.config;
        let census = Census::default();
        let places = Places::new(&census);
        let (sessions, sessions_args) = sessions(loaded, journal, &census, &places).await?;
        let (tools, redactor) = (LateTools::default(), Arc::new(redactor(config)?));
        let values = redactor.clone();
        let daemon = Daemon {
            folders: loaded.folders.shared(),
            journal: journal.clone(),
            census: census.clone(),
            sessions: Arc::new(sessions.clone()),
            tools: Arc::new(tools.clone()),
            ports: Ports::default(),
            room: Room::with_floor_mb(config.daemon.free_space_floor_mb),
            redact: Arc::new(move |text| redactor.text(text).into_owned()),
            rate_limits: config.registry.rate.enabled,
            closing: CancellationToken::new(),
        };
        let own = families::catalogue();
        let knowledge = SelfKnowledge::new(loaded.clone(), &own);
        let all = own.entries().map(|entry| entry.spec).collect();
        let catalogue = Arc::new(SharedCatalogue::new(own));
        daemon.ports.offer::<dyn ValueRedactor>(values);
        daemon.ports.offer::<dyn Introspection>(Arc::new(knowledge));
        daemon.ports.offer::<dyn SessionToolsets>(Arc::new(sessions.clone()));
        let children = Arc::new(DispatchedChildren::new(sessions.clone()));
        daemon.ports.offer::<dyn ChildSessions>(children.clone());
        daemon.ports.offer::<dyn ToolCatalogue>(Arc::new(ListedTools::new(catalogue.clone())));
        daemon.ports.offer::<dyn ToolPublisher>(catalogue.clone());
        let policy = PolicyEngine::open(config.policy.clone(), all, journal.clone()).await?;
        let options = config.registry.deferred.clone();
        let now = catalogue.now();
        let deferred = DeferredCalls::open(
            options,
            journal.clone(),
            sessions.clone(),
            &now,
            daemon.closing.clone(),
        );
        let deferred = deferred.await?;
        let people = SessionPeople { policy: policy.clone(), sessions: sessions.clone() };
        daemon.ports.offer::<dyn People>(Arc::new(people));
        daemon.ports.offer::<dyn StandingQuestions>(Arc::new(policy.approvals().clone()));
        let families = families::mount(&daemon, config)
            .await
            .map_err(|(family, error)| Error::Family { family, error: Box::new(error) })?;
        let args = Args {
            places: places.clone(),
            census: census.clone(),
            journal: journal.clone(),
            registry: RegistryArgs { admission: config.registry.admission.clone() },
            sessions: sessions_args,
            families: families.iter().flat_map(|family| family.children.clone()).collect(),
        };
        let (cell, ended) = spawn_root::<Root>(&places.root, args)
            .await
            .map_err(|Fault(reason)| Error::Tree(reason))?;
        let Daemon { ports, closing, .. } = daemon;
        Ok(Self {
            places,
            census,
            sessions,
            catalogue,
            policy,
            deferred,
            tools,
            children,
            ports,
            families,
            closing,
            cell,
            ended,
        })
    }

    /// Routes from tools to the actors that serve them.
    fn routes(&self) -> Routes {
        let mut routes = Routes::default();
        for family in &self.families {
            for (name, target) in &family.singletons {
                routes = routes.singleton(name.clone(), target.clone());
            }
            for (kind, directory) in &family.directories {
                routes = routes.directory(kind, directory.clone());
            }
        }
        routes
    }

    /// State that the doors need.
    fn core(
        &self,
        loaded: LoadedConfig,
        (journal, audit): (Journal, Option<AuditLog>),
        credentials: Credentials,
        stop: watch::Sender<StopOrder>,
    ) -> Result<Arc<DaemonServices>, Error> {
        let catalogue = self.catalogue.clone();
        let routes = self.routes();
        let unserved = routes.unserved(&catalogue.now());
        if !unserved.is_empty() {
            return Err(Error::Tree(format!("nobody serves {}", unserved.join(", "))));
        }
        let dispatcher = Dispatcher::new(DispatchParts {
            options: loaded.config.registry.clone(),
            catalogue: catalogue.clone(),
            routes,
            registry: self.places.registry.clone(),
            sessions: self.sessions.clone(),
            events: journal.events(),
            audit: audit.clone(),
            policy: self.policy.clone(),
            policies: Vec::new(),
            waiting: self.ports.find(),
            results: self.ports.find(),
        })
        .map_err(|error| Error::Redaction(error.to_string()))?;
        self.tools.wire(Arc::new(dispatcher.clone()));
        self.children.wire(dispatcher.clone());
        self.ports.offer::<dyn KnownUsers>(Arc::new(credentials.clone()));
        let none = Default::default();
        let everything = ToolListing::of(&catalogue.now(), &usual_view(&loaded.config), &none);
        Ok(Arc::new(DaemonServices {
            incoming: MessageRoom::new(&loaded.config),
            config: loaded.config,
            folders: loaded.folders,
            tools: catalogue,
            dispatcher,
            deferred: self.deferred.clone(),
            sessions: self.sessions.clone(),
            credentials,
            ports: self.ports.clone(),
            documents: self.families.iter().flat_map(|family| family.documents.clone()).collect(),
            names: self.families.iter().flat_map(|family| family.names.clone()).collect(),
            prompts: PROMPTS,
            census: self.census.clone(),
            journal,
            audit,
            since: Instant::now(),
            parents: Default::default(),
            connections: Default::default(),
            mcp_http: Default::default(),
            http_api: Default::default(),
            e2b: Default::default(),
            port_urls: Default::default(),
            backups: Arc::new(tokio::sync::Semaphore::new(1)),
            stop,
            everything: ArcSwap::from_pointee(everything),
        }))
    }

    /// Waits until every actor of the first rank is at its place.
    async fn awake(self) -> Result<Self, Error> {
        let until = Instant::now() + TREE_PATIENCE;
        while Instant::now() < until && !self.ended.is_finished() {
            if self.asleep().is_empty() {
                return Ok(self);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let why: Vec<_> = self
            .asleep()
            .into_iter()
            .map(|row| {
                format!("{} is {}: {}", row.path, row.state, row.last_error.unwrap_or_default())
            })
            .collect();
        Err(Error::Tree(why.join("; ")))
    }

    fn asleep(&self) -> Vec<ActorRow> {
        let rows = self.census.rows().into_iter();
        rows.filter(|row| self.places.first_rank(&row.path))
            .filter(|row| {
                matches!(row.state.as_str(), "starting" | "restarting" | "gave_up" | "stopped")
            })
            .collect()
    }

    /// The last failure of an actor of the first rank.
    fn last_error(&self) -> Option<String> {
        let rows = self.census.rows().into_iter();
        rows.filter(|row| self.places.first_rank(&row.path))
            .find_map(|row| Some(format!("{}: {}", row.path, row.last_error?)))
    }

    /// Stops the tree, bottom-up.
    async fn fell(self, with_workspaces: bool) {
        if with_workspaces {
            for family in self.families.into_iter().rev() {
                if let Some(tear_down) = family.tear_down {
                    tear_down().await;
                }
            }
        }
        self.cell.stop(Some("the daemon stops".to_owned()));
        // Each rank waits for the one below it with its own patience of 20 s.
        if tokio::time::timeout(Duration::from_secs(60), self.ended).await.is_err() {
            tracing::error!("the tree did not stop in time; what it acknowledged is on the disk");
        }
    }
}

/// A sign of life of the tree: an answer of the registry.
pub(super) async fn alive(places: &Places) -> bool {
    places.registry.ask(Duration::from_secs(10), registry::Msg::Targets).await.is_ok()
}
