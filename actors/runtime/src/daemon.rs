//! Mount context: everything of the daemon that a family may use.

use std::{path::PathBuf, sync::Arc};

use hivekeep_kernel::{
    Address, Census, RestartPolicy, Room,
    ports::{SessionQuotas, Tools},
};
use hivekeep_store::Journal;
use tokio_util::sync::CancellationToken;

use crate::Ports;

/// Folders of the daemon on this host. Absolute paths of folders that exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// State that outlives the daemon.
    pub state: PathBuf,
    /// Sockets and run folders; gone after a reboot.
    pub run: PathBuf,
    /// Log files.
    pub logs: PathBuf,
}

/// Redactor: replaces what looks like a secret.
pub type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Daemon services as its families get them. Cheap to clone.
#[derive(Clone)]
pub struct Daemon {
    /// Folders of the daemon.
    pub folders: Folders,
    /// Journal, which also carries the events.
    pub journal: Journal,
    /// Status of every actor.
    pub census: Census,
    /// Sessions and their quotas.
    pub sessions: Arc<dyn SessionQuotas>,
    /// Tools, for calls on a session's behalf. Refuses calls until the daemon serves.
    pub tools: Arc<dyn Tools>,
    /// Services that families offer each other.
    pub ports: Ports,
    /// Free space on the host.
    pub room: Room,
    /// Redactor for what guests report and events carry.
    pub redact: Redact,
    /// True if rate limits apply at all (`registry.rate.enabled`).
    pub rate_limits: bool,
    /// Fires when an ordered stop begins, before any call is cut short by it.
    pub closing: CancellationToken,
}

/// Root of the supervision tree, as paths of actors show it.
pub(crate) const ROOT: &str = "root";

impl Daemon {
    /// Address of an actor that [`Mounted::child`](crate::Mounted::child) will put below the root.
    /// Usable before the actor is started.
    pub fn address<M: Send + 'static>(
        &self,
        name: &'static str,
        policy: RestartPolicy,
    ) -> Address<M> {
        Address::vacant(self.census.probe(&format!("{ROOT}/{name}"), name, policy))
    }
}
