//! The context of a family: everything of the daemon that is not a family's own.

use std::{path::PathBuf, sync::Arc};

use hivekeep_kernel::{
    Address, Census, RestartPolicy, Room,
    ports::{Sessions, Tools},
};
use hivekeep_store::Journal;
use tokio_util::sync::CancellationToken;

use crate::Ports;

/// Where the daemon keeps things on this host. Absolute paths of folders that exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// State that outlives the daemon.
    pub state: PathBuf,
    /// Sockets and run folders; gone after a reboot.
    pub run: PathBuf,
    /// Logs.
    pub logs: PathBuf,
}

/// Replaces what looks like a secret.
pub type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The daemon as its families have it. Cheap to clone.
#[derive(Clone)]
pub struct Daemon {
    /// Where things are.
    pub folders: Folders,
    /// The journal, and through it the events.
    pub journal: Journal,
    /// The status of every actor.
    pub census: Census,
    /// Who is attached, and what may be reserved for whom.
    pub sessions: Arc<dyn Sessions>,
    /// Every tool, for calls on a session's behalf. Not before the daemon serves.
    pub tools: Arc<dyn Tools>,
    /// What families offer each other.
    pub ports: Ports,
    /// Free space on the host.
    pub room: Room,
    /// For what guests say and events pass on.
    pub redact: Redact,
    /// Whether anybody is slowed down at all (`registry.rate.enabled`).
    pub rate_limits: bool,
    /// Fires when an ordered stop begins, before any call is cut short by it.
    pub closing: CancellationToken,
}

/// The root of the supervision tree, as paths of actors show it.
pub(crate) const ROOT: &str = "root";

impl Daemon {
    /// The address of an actor that [`Mounted::child`](crate::Mounted::child) will put below the
    /// root. It can be given away before the actor is started.
    pub fn address<M: Send + 'static>(
        &self,
        name: &'static str,
        policy: RestartPolicy,
    ) -> Address<M> {
        Address::vacant(self.census.probe(&format!("{ROOT}/{name}"), name, policy))
    }
}
