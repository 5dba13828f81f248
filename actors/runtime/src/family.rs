//! Plug-in interface: a family of tools with its actors, its section of the configuration and its requirements,
//! and what it adds to the daemon at the composition root.

use std::{
    fmt,
    future::{Future, ready},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{
    Address, Children, Context, Entity, ErrorCode, Fault, Target, ToolCall, ToolError, ToolInfo,
    serve::ActorDirectory,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Daemon, Finding, Host,
    documents::{Documents, Names},
};

/// Section of the configuration.
pub trait FamilyOptions:
    Clone + Default + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + 'static
{
    /// Values that cannot work although each has the right type: keys of the section, with reasons.
    fn problems(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Requirements of the family on the journal: keys of `[store]`, with reasons. Checked whether
    /// or not anything is set in the family's own section.
    fn store_problems(&self, store: &hivekeep_store::Options) -> Vec<(&'static str, String)> {
        let _ = store;
        Vec::new()
    }
}

/// A section without keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoOptions {}

impl FamilyOptions for NoOptions {}

/// Address of a door, and its TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerOptions {
    /// Whether it listens.
    pub enabled: bool,
    /// Address and port. Others than loopback addresses need `tls_cert` and `tls_key`.
    pub bind: String,
    /// The certificate chain as PEM, for TLS. Unset: no encryption.
    pub tls_cert: Option<PathBuf>,
    /// The private key of `tls_cert` as PEM. Nobody else may be able to read it.
    pub tls_key: Option<PathBuf>,
}

impl ListenerOptions {
    /// A listener that is off, without TLS.
    pub fn at(bind: &str) -> Self {
        Self { enabled: false, bind: bind.to_owned(), tls_cert: None, tls_key: None }
    }

    /// Address to listen on.
    ///
    /// # Errors
    /// When `bind` is not an address, or one that others reach and there is no TLS.
    pub fn address(&self) -> Result<SocketAddr, String> {
        let address = self.bind.parse();
        let address =
            address.map_err(|_| format!("`{}` is not a valid address:port", self.bind))?;
        self.reachable(address).map(|()| address)
    }

    /// Whether an address may be listened on at all.
    ///
    /// # Errors
    /// When others reach it and there is no TLS.
    pub fn reachable(&self, address: SocketAddr) -> Result<(), String> {
        match address.ip().is_loopback() || self.tls_cert.is_some() {
            true => Ok(()),
            false => {
                let why = "is not a loopback address: set `tls_cert` and `tls_key`";
                Err(format!("{} {why}", address.ip()))
            }
        }
    }

    /// Settings that cannot work, as key and reason.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let bind = self.address().err().map(|why| ("bind", why));
        let half = self.tls_cert.is_some() != self.tls_key.is_some();
        let half = half.then(|| ("tls_key", "`tls_cert` and `tls_key` go together".to_owned()));
        bind.into_iter().chain(half).collect()
    }
}

/// Family of tools. Its line in `config/src/families.rs` is the only mention of it in the rest of the
/// daemon.
pub trait Family: 'static {
    /// Section of the configuration.
    type Options: FamilyOptions;

    /// Introduction for models, read before the tools: one sentence or two that name them.
    const INSTRUCTIONS: &'static str = "";

    /// Kinds of things that it keeps for users and bounds by their tiers, as `registry.tiers.*.holds`
    /// names them; it asks for each bound by
    /// [`SessionQuotas::allowance`](hivekeep_ports::SessionQuotas::allowance).
    const HOLDS: &'static [&'static str] = &[];

    /// Declarations of the tools, in listing order. Needs no daemon.
    fn tools() -> Vec<&'static ToolInfo> {
        Vec::new()
    }

    /// The error codes that it declares, those of its own crates included. Needs no daemon.
    fn codes() -> Vec<&'static ErrorCode> {
        Vec::new()
    }

    /// Opens what it keeps and says which actors it has. Runs once, before any actor does.
    ///
    /// # Errors
    /// Any error keeps the daemon from starting.
    fn mount(
        daemon: &Daemon,
        options: Self::Options,
    ) -> impl Future<Output = Result<Mounted, ToolError>> + Send;

    /// Checks what the family needs on this host, for `hivekeep check`. Makes nothing; a daemon may
    /// be running.
    fn check(options: &Self::Options, host: &Host) -> impl Future<Output = Vec<Finding>> + Send {
        let _ = (options, host);
        ready(Vec::new())
    }
}

type Start = dyn Fn(&mut Children) -> Result<(), Fault> + Send + Sync;

/// Actor below the root. Cheap to clone.
#[derive(Clone)]
pub struct Child(Arc<Start>);

impl Child {
    /// Makes a child of an actor at an address of [`Daemon::address`](crate::Daemon::address).
    pub fn new<E: Entity>(address: Address<E::Msg>, args: E::Args) -> Self {
        Self(Arc::new(move |root| root.start_at::<E>(&address, args.clone())))
    }

    /// Starts the actor. Returns before its `start` is done.
    ///
    /// # Errors
    /// Fails when it cannot be spawned.
    pub fn start(&self, root: &mut Children) -> Result<(), Fault> {
        (self.0)(root)
    }
}

/// Work of an ordered stop with all workspaces, done before the tree ends. Logs its failures.
pub type TearDown = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send + Sync>;

/// Mounted family.
#[derive(Default)]
pub struct Mounted {
    /// Actors below the root, in the order of their start.
    pub children: Vec<Child>,
    /// Single actors that serve tools, by the names that declarations use.
    pub singletons: Vec<(String, Arc<dyn Target>)>,
    /// Lookups of the kinds of actors that serve tools.
    pub directories: Vec<(&'static str, Arc<dyn ActorDirectory>)>,
    /// Documents that MCP clients list, read and subscribe to by URI.
    pub documents: Vec<Arc<dyn Documents>>,
    /// Names that complete what a person types.
    pub names: Vec<Arc<dyn Names>>,
    /// Work of an ordered stop; run in reverse order of mounting.
    pub tear_down: Option<TearDown>,
}

impl Mounted {
    /// Adds an actor below the root.
    #[must_use]
    pub fn child<E: Entity>(mut self, address: &Address<E::Msg>, args: E::Args) -> Self {
        self.children.push(Child::new::<E>(address.clone(), args));
        self
    }

    /// Adds an actor below the root that serves the tools whose declarations name it.
    #[must_use]
    pub fn serving<E: Entity>(mut self, address: &Address<E::Msg>, args: E::Args) -> Self
    where
        E::Msg: From<ToolCall>,
    {
        let name = address.probe().name().to_owned();
        self.singletons.push((name, Arc::new(address.clone())));
        self.child::<E>(address, args)
    }

    /// Adds an actor below the root that does this at once, and again when so much time is over since
    /// it last ended. A durable timer goes by records: what a look missed, the next one finds.
    #[must_use]
    pub fn periodic<S, F>(
        self,
        address: &Address<()>,
        every: Duration,
        state: S,
        work: impl Fn(S) -> F + Send + Sync + 'static,
    ) -> Self
    where
        S: Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let work = Arc::new(move || work(state.clone()).boxed());
        self.child::<Periodic>(address, PeriodicWork { every, work })
    }

    /// Adds the lookup of the actors of a kind.
    #[must_use]
    pub fn directory(mut self, kind: &'static str, directory: Arc<dyn ActorDirectory>) -> Self {
        self.directories.push((kind, directory));
        self
    }

    /// Adds documents that MCP clients list, read and subscribe to by URI.
    #[must_use]
    pub fn documents(mut self, documents: Arc<dyn Documents>) -> Self {
        self.documents.push(documents);
        self
    }

    /// Adds names that complete what a person types.
    #[must_use]
    pub fn names(mut self, names: Arc<dyn Names>) -> Self {
        self.names.push(names);
        self
    }

    /// Sets the work of an ordered stop with all workspaces.
    #[must_use]
    pub fn tear_down<F: Future<Output = ()> + Send + 'static>(
        mut self,
        work: impl FnOnce() -> F + Send + Sync + 'static,
    ) -> Self {
        self.tear_down = Some(Box::new(move || work().boxed()));
        self
    }
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let singletons: Vec<_> = self.singletons.iter().map(|(name, _)| name).collect();
        f.debug_struct("Mounted")
            .field("children", &self.children.len())
            .field("singletons", &singletons)
            .finish_non_exhaustive()
    }
}

/// Work of a [`Periodic`], and the time from its end to its next begin.
#[derive(Clone)]
struct PeriodicWork {
    every: Duration,
    work: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

/// See [`Mounted::periodic`](crate::Mounted::periodic).
struct Periodic;

impl Entity for Periodic {
    type Msg = ();
    type Args = PeriodicWork;

    async fn start(args: PeriodicWork, me: Context<()>) -> Result<Self, Fault> {
        let _detached = me.workers.clone().spawn(async move {
            // Keeps the address: without one the actor would end.
            let _me = me;
            loop {
                (args.work)().await;
                tokio::time::sleep(args.every).await;
            }
        });
        Ok(Self)
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_get_in_over_tls_alone() {
        let told = |options: &ListenerOptions| {
            options.problems().into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(told(&ListenerOptions::at("127.0.0.1:0")), [""; 0]);
        assert_eq!(told(&ListenerOptions::at("localhost")), ["bind"]);
        let outside = ListenerOptions::at("0.0.0.0:80");
        assert!(outside.problems()[0].1.contains("tls_cert"));
        let with_tls = ListenerOptions {
            tls_cert: Some("/c".into()),
            tls_key: Some("/k".into()),
            ..outside.clone()
        };
        assert_eq!(told(&with_tls), [""; 0]);
        assert_eq!(told(&ListenerOptions { tls_key: None, ..with_tls }), ["tls_key"]);
        let key_alone = ListenerOptions { tls_key: Some("/k".into()), ..outside };
        assert_eq!(told(&key_alone), ["bind", "tls_key"]);
    }
}
