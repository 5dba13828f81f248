//! Mount context: everything of the daemon that a family may use, with the service locator, which is filled in
//! the order in which families are mounted.

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use hivekeep_kernel::{Address, Census, RestartPolicy, Room, ToolError, lock};
use hivekeep_ports::{SessionQuotas, Tools};
use hivekeep_store::Journal;
use tokio_util::sync::CancellationToken;

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
const ROOT: &str = "root";

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

/// Services that families offer each other, by type: a trait (`dyn Vault`) or a plain value. Cheap
/// to clone; all clones share one table.
#[derive(Clone, Default)]
pub struct Ports(Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send + Sync>>>>);

impl Ports {
    /// Offers a port to the families that are mounted later. A second one of the type replaces the
    /// first.
    pub fn offer<T: ?Sized + Send + Sync + 'static>(&self, port: Arc<T>) {
        let mut ports = lock(&self.0);
        ports.insert(TypeId::of::<T>(), Box::new(port));
    }

    /// Port of this type, if a family has offered one.
    pub fn find<T: ?Sized + Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let ports = lock(&self.0);
        ports.get(&TypeId::of::<T>())?.downcast_ref::<Arc<T>>().cloned()
    }

    /// Port of this type, without which a family cannot be mounted.
    ///
    /// # Errors
    /// `internal`, with the type: nobody offers it, or only a family later in the list.
    pub fn need<T: ?Sized + Send + Sync + 'static>(&self) -> Result<Arc<T>, ToolError> {
        self.find().ok_or_else(|| {
            let name = type_name::<T>();
            ToolError::internal(format!("no family that is mounted before offers {name}"))
        })
    }
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ports = lock(&self.0);
        f.debug_struct("Ports").field("len", &ports.len()).finish()
    }
}

#[cfg(feature = "test-util")]
impl Daemon {
    /// Context for the tests of a family: everything below one folder, nothing offered, rates limited,
    /// nothing redacted.
    pub fn for_tests(
        folder: &std::path::Path,
        journal: Journal,
        sessions: Arc<dyn SessionQuotas>,
        tools: Arc<dyn Tools>,
    ) -> Self {
        let [state, run, logs] = [(); 3].map(|()| folder.to_owned());
        Self {
            folders: Folders { state, run, logs },
            journal,
            census: Default::default(),
            sessions,
            tools,
            ports: Default::default(),
            room: Default::default(),
            redact: Arc::new(str::to_owned),
            rate_limits: true,
            closing: Default::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    trait Greets: Send + Sync {
        fn greet(&self) -> String;
    }
    struct English;
    impl Greets for English {
        fn greet(&self) -> String {
            "hello".to_owned()
        }
    }

    #[test]
    fn a_port_is_found_by_its_type_and_by_no_other() {
        let ports = Ports::default();
        let refused = ports.need::<dyn Greets>().err().expect("nobody offers it");
        assert_eq!(refused.code, "internal");
        assert!(refused.message.contains("Greets"), "{refused:?}");

        ports.clone().offer::<dyn Greets>(Arc::new(English));
        assert_eq!(ports.need::<dyn Greets>().expect("offered").greet(), "hello");
        assert!(ports.find::<English>().is_none(), "it is offered as what it does");

        ports.offer(Arc::new(7_u32));
        assert_eq!(ports.find::<u32>().as_deref(), Some(&7));
    }
}
