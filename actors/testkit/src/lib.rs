//! A test harness of one family: mounted below a root of its own, over a real journal in a folder.
//!
//! The test gives what the daemon would bring: its sessions, its tools and the ports it offers. Calls
//! are delivered to mailboxes as the registry would, those of many of a kind included. The daemon dies,
//! or is stopped, and starts again over the same folder.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod call;
mod users;

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use hivekeep_kernel::{
    Address, Addressing, Census, ChildEnd, Children, Context, Entity, Fault, RestartPolicy, Room,
    SessionId, Target, ToolError, ToolInfo, entity::spawn_root, serve::ActorDirectory,
};
use hivekeep_ports::{SessionQuotas, Tools};
use hivekeep_runtime::{Child, Daemon, Family, Ports};
use hivekeep_store::Journal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use call::{PendingCall, context, eventually};
pub use users::FakeUsers;

/// Time limit of a call that a test awaits.
const PATIENCE: Duration = Duration::from_secs(60);

/// The parts of the daemon that a family does not bring itself. Cheap to clone.
#[derive(Clone)]
pub struct RigServices {
    /// Sessions of the daemon.
    pub sessions: Arc<dyn SessionQuotas>,
    /// The daemon's other tools.
    pub tools: Arc<dyn Tools>,
    /// Offers what the family needs, to each daemon anew; a [`Room`] is the daemon's.
    pub offer: Arc<dyn Fn(&Ports) + Send + Sync>,
}

/// A family that runs.
pub struct Rig<F: Family> {
    /// Context of the family.
    pub daemon: Daemon,
    /// The session of calls that name no other.
    pub session: SessionId,
    /// How often a call gave back its place among those that are worked on.
    pub given_back: Arc<AtomicUsize>,
    /// Options of the family; those of the next daemon once they are changed.
    pub options: F::Options,
    surroundings: RigServices,
    singletons: Vec<(String, Arc<dyn Target>)>,
    directories: Vec<(&'static str, Arc<dyn ActorDirectory>)>,
    cell: ractor::ActorCell,
    folder: Arc<TempDir>,
}

impl<F: Family> Rig<F> {
    /// Mounts a family in a new folder and starts it.
    pub async fn new(options: F::Options, surroundings: RigServices) -> Self {
        let folder = Arc::new(TempDir::new().expect("a folder"));
        Self::open(options, surroundings, folder, SessionId::new()).await
    }

    async fn open(
        options: F::Options,
        surroundings: RigServices,
        folder: Arc<TempDir>,
        session: SessionId,
    ) -> Self {
        let store = hivekeep_store::Options::at(folder.path());
        let opened = tokio::task::spawn_blocking(move || Journal::open(store)).await;
        let (journal, _) = opened.expect("no panic").expect("the journal opens");
        let RigServices { sessions, tools, offer } = surroundings.clone();
        let mut daemon = Daemon {
            census: Census::default(),
            closing: CancellationToken::new(),
            ..Daemon::for_tests(folder.path(), journal, sessions, tools)
        };
        offer(&daemon.ports);
        if let Some(room) = daemon.ports.find::<Room>() {
            daemon.room = (*room).clone();
        }
        let mounted = F::mount(&daemon, options.clone()).await.expect("it is mounted");
        let probe = daemon.census.probe("root", "root", RestartPolicy::ESSENTIAL);
        let started = Arc::new(Notify::new());
        let args = Args {
            census: daemon.census.clone(),
            children: mounted.children,
            started: started.clone(),
        };
        let (cell, _) = spawn_root::<Root>(&Address::vacant(probe), args).await.expect("it spawns");
        started.notified().await;
        Self {
            daemon,
            session,
            given_back: Arc::default(),
            options,
            surroundings,
            singletons: mounted.singletons,
            directories: mounted.directories,
            cell,
            folder,
        }
    }

    /// The daemon dies where it stands and is started again. What it had begun elsewhere goes on.
    pub async fn crashed(self) -> Self {
        self.cell.kill();
        self.daemon.journal.close().await;
        let Self { surroundings, options, folder, session, .. } = self;
        Self::open(options, surroundings, folder, session).await
    }

    /// The daemon is stopped in order, of which it was told before, and started again.
    pub async fn stopped(self) -> Self {
        assert!(self.daemon.closing.is_cancelled(), "an ordered stop is told first");
        self.cell.stop_and_wait(None, None).await.expect("it stops");
        self.crashed().await
    }

    /// Kills the children of each actor below the root; policies apply.
    pub fn kill_grandchildren(&self) {
        let below = self.cell.get_children();
        below.iter().flat_map(ractor::ActorCell::get_children).for_each(|child| child.kill());
    }

    /// Declaration of a tool, and the actor that serves a call of it with this input.
    ///
    /// # Errors
    /// As a directory that knows no such actor.
    pub fn route(
        &self,
        tool: &str,
        args: &Value,
    ) -> Result<(&'static ToolInfo, Arc<dyn Target>), ToolError> {
        let info = F::tools().into_iter().find(|info| info.spec.name == tool).expect("a tool");
        let target = match info.spec.addressing {
            Addressing::Singleton(name) => {
                let known = self.singletons.iter().find(|(known, _)| known == name);
                known.expect("it is mounted").1.clone()
            }
            Addressing::Field { kind, field } => {
                let known = self.directories.iter().find(|(known, _)| *known == kind);
                let id_or_name = args[field].as_str().expect("the field is given");
                known.expect("it is mounted").1.find(id_or_name)?
            }
        };
        Ok((info, target))
    }

    /// Begins a call of a tool whose actor is there.
    pub fn begin_as(
        &self,
        session: SessionId,
        tool: &str,
        args: Value,
        limit: Duration,
    ) -> PendingCall {
        let (info, target) = self.route(tool, &args).expect("its actor is known");
        let (call, running) = call::of(info, session, args, limit, self.given_back.clone());
        target.deliver(call).expect("its actor is there");
        running
    }

    /// Calls a tool in the rig's session.
    ///
    /// # Errors
    /// As the tool.
    pub async fn call(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.begin_as(self.session, tool, args, PATIENCE).answer().await
    }
}

/// Arguments of the [`Root`].
#[derive(Clone)]
struct Args {
    census: Census,
    children: Vec<Child>,
    /// Told when they are at their addresses.
    started: Arc<Notify>,
}

/// Root supervisor of the actors that a family brings.
struct Root(Children);

impl Entity for Root {
    type Msg = ();
    type Args = Args;

    async fn start(args: Args, me: Context<()>) -> Result<Self, Fault> {
        let mut children = Children::new("root", args.census, me.cell);
        args.children.iter().try_for_each(|child| child.start(&mut children))?;
        args.started.notify_one();
        Ok(Self(children))
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        self.0.handle_end(end).map(drop)
    }
}
