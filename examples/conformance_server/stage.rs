//! A daemon's inside with the fixtures as its only family.

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, Result, anyhow};
use hivekeep_config::{ConfigSources, LoadedConfig};
use hivekeep_door_server::{
    DaemonServices, StopOrder, credentials::Credentials, incoming::MessageRoom,
    listing::ToolListing,
};
use hivekeep_kernel::{
    Address, Census, ChildEnd, Children, Context, Entity, Fault, RestartPolicy, ToolCall,
    entity::spawn_root,
};
use hivekeep_policy::{Approvals, PolicyEngine};
use hivekeep_registry::{
    Catalogue, DeferredCalls, DispatchParts, Dispatcher, Registry, RegistryArgs, Routes, Sessions,
    SessionsArgs, SessionsHandle, SharedCatalogue, ToolView, registry, sessions,
};
use hivekeep_store::Journal;
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    fixtures::{Fixtures, tools},
    resources::{PROMPTS, TestResources},
};

/// What the door stands on.
pub struct Stage {
    /// As the daemon's doors see it.
    pub core: Arc<DaemonServices>,
    root: ractor::ActorCell,
}

impl Stage {
    /// Everything below a folder.
    pub async fn new(home: &Path) -> Result<Self> {
        let loaded = configuration(home)?;
        std::fs::create_dir_all(&loaded.folders.state)?;
        let store = hivekeep_store::Options::at(loaded.folders.journal());
        let (journal, _) = tokio::task::spawn_blocking(move || Journal::open(store)).await??;
        let census = Census::default();
        let place = |path| census.probe(path, "fixture", RestartPolicy::ESSENTIAL);
        let root = Address::vacant(place("root"));
        let registry = Address::vacant(place("root/registry"));
        let sessions_place = Address::vacant(place("root/sessions"));
        let fixtures = Address::vacant(place("root/fixtures"));
        let options = loaded.config.registry.clone();
        let (sessions, sessions_seed) = SessionsHandle::restore(
            &options,
            hivekeep_registry::host_room(&options.host, home),
            journal.clone(),
            census.clone(),
            sessions_place.clone(),
        )?;
        let catalogue = Arc::new(SharedCatalogue::new(Catalogue::new(tools())?));
        let routes = Routes::default().singleton("fixtures", Arc::new(fixtures.clone()));
        let policy = policy(&loaded, &catalogue.now(), &journal).await?;
        let args = Args {
            census: census.clone(),
            registry: (registry.clone(), RegistryArgs { admission: options.admission.clone() }),
            sessions: (sessions_place, sessions_seed),
            fixtures: (fixtures, policy.approvals().clone()),
        };
        let (cell, _) = spawn_root::<Root>(&root, args).await.context("the tree")?;
        let dispatcher = Dispatcher::new(DispatchParts {
            options,
            policy,
            catalogue: catalogue.clone(),
            routes,
            registry,
            sessions: sessions.clone(),
            audit: None,
            events: journal.events(),
            policies: Vec::new(),
            waiting: None,
            results: None,
        })?;
        let now = catalogue.now();
        let everything = ToolListing::of(&now, &ToolView::default(), &Default::default());
        let deferred = DeferredCalls::open(
            loaded.config.registry.deferred.clone(),
            journal.clone(),
            sessions.clone(),
            &now,
            CancellationToken::new(),
        );
        let core = Arc::new(DaemonServices {
            deferred: deferred.await?,
            incoming: MessageRoom::new(&loaded.config),
            config: loaded.config,
            folders: loaded.folders,
            tools: catalogue,
            dispatcher,
            sessions,
            credentials: Credentials::open(&journal).await?,
            ports: Default::default(),
            documents: vec![Arc::new(TestResources(broadcast::channel(8).0))],
            names: Vec::new(),
            prompts: PROMPTS,
            census,
            journal,
            audit: None,
            since: Instant::now(),
            parents: Default::default(),
            connections: Default::default(),
            mcp_http: Default::default(),
            http_api: Default::default(),
            e2b: Default::default(),
            port_urls: Default::default(),
            backups: Arc::new(tokio::sync::Semaphore::new(1)),
            stop: watch::channel(StopOrder::None).0,
            everything: arc_swap::ArcSwap::from_pointee(everything),
        });
        Ok(Self { core, root: cell })
    }

    /// Stops the actors, then the journal.
    pub async fn end(self) {
        let reason = Some("the input ended".to_owned());
        if let Err(error) = self.root.stop_and_wait(reason, None).await {
            eprintln!("the tree did not stop: {error}");
        }
        self.core.journal.close().await;
    }
}

/// The supervisor of the three.
struct Root(Children);

#[derive(Clone)]
struct Args {
    census: Census,
    registry: (Address<registry::Msg>, RegistryArgs),
    sessions: (Address<sessions::Msg>, SessionsArgs),
    fixtures: (Address<ToolCall>, Approvals),
}

impl Entity for Root {
    type Msg = ();
    type Args = Args;

    async fn start(args: Args, me: Context<()>) -> Result<Self, Fault> {
        let Args { census, registry, sessions, fixtures } = args;
        let mut children = Children::new("root", census, me.cell);
        let policy = RestartPolicy::ESSENTIAL;
        children.start::<Registry>("registry", policy, &registry.0, registry.1)?;
        children.start::<Sessions>("sessions", policy, &sessions.0, sessions.1)?;
        children.start::<Fixtures>("fixtures", policy, &fixtures.0, fixtures.1)?;
        Ok(Self(children))
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }

    fn child(&mut self, news: ChildEnd) -> Result<(), Fault> {
        self.0.handle_end(news).map(drop)
    }
}

/// The policy engine, as the configuration has it.
async fn policy(
    loaded: &LoadedConfig,
    catalogue: &Catalogue,
    journal: &Journal,
) -> Result<PolicyEngine> {
    let tools = catalogue.entries().map(|entry| entry.spec).collect();
    Ok(PolicyEngine::open(loaded.config.policy.clone(), tools, journal.clone()).await?)
}

/// Configuration of a daemon that the suite can drive.
fn configuration(home: &Path) -> Result<LoadedConfig> {
    let set = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let given = ConfigSources {
        env: vec![
            set("HIVEKEEP_HOME", &home.to_string_lossy()),
            set("HIVEKEEP_HTTP__MCP__BIND", "127.0.0.1:0"),
            // The suite plays a page of this host, and one of another.
            set("HIVEKEEP_HTTP__ALLOWED_ORIGINS", r#"["http://127.0.0.1:*"]"#),
            // It calls faster than a model.
            set("HIVEKEEP_REGISTRY__RATE__ENABLED", "false"),
            // Its slow tools take a second.
            set("HIVEKEEP_REGISTRY__DEFERRED__AFTER_MS", "300"),
        ],
        ..ConfigSources::default()
    };
    hivekeep_config::load(&given).map_err(|problems| anyhow!("{problems}"))
}
