//! State that the actor and its handles share; it outlives the actor's restarts. With it comes the
//! choice of the guests' subnet: as configured, or one that this daemon chooses itself.
//!
//! A bridge is made with its first member only, so two daemons that start together would both find
//! the same subnet free. Each therefore holds a name for its own, as for its tag: an abstract
//! socket of the network namespace, which the kernel gives back when the process ends in any way.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use hivekeep_kernel::{Address, Layer, ToolError, WorkspaceId};
use hivekeep_ports::NetworkView;
use hivekeep_runtime::Ports;
use hivekeep_store::{Events, Journal, NewEvent};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use serde_json::Value;
use tokio::sync::watch;

use super::backend::Backend;
use super::change::{self, Logs};
use super::{Args, Msg, NetworkHandle, start};
use crate::plan::{NetworkPlan, Subnet, Tag};
use crate::{Enforcer, Error, NetworkModeChoice, Options, codes};

/// Time that the self-test may take until callers are asked to come again.
const BACKEND_PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct NetworkShared {
    pub(super) options: Options,
    pub(super) tag: Tag,
    pub(super) state_dir: PathBuf,
    pub(super) journal: Journal,
    pub(super) logs: Logs,
    pub(super) events: Events,
    pub(super) address: Address<Msg>,
    /// With the way into guests, once it is offered.
    pub(super) ports: Ports,
    /// Decided once, when the self-test is over.
    pub(super) backend: watch::Sender<Option<Arc<Backend>>>,
    pub(super) views: ArcSwap<HashMap<WorkspaceId, NetworkView>>,
    /// The newest plan that the worker has been told of.
    pub(super) newest: AtomicU64,
    /// Generation of the plan that the worker is bringing the kernel to now: taps that are not in
    /// that plan are removed.
    pub(super) under_way: watch::Sender<Option<u64>>,
    pub(super) subnet: Subnet,
    /// The hold on the subnet, if this daemon has chosen it now.
    pub(super) chosen: Option<OwnedFd>,
    /// Held by the one daemon of this tag, and of this subnet, in this network namespace.
    pub(super) lock: OnceLock<Vec<OwnedFd>>,
}

/// Makes the network's handle and the arguments of its actor. With `mode = "bridge"` it looks first
/// whether there can be one. Connections that wake a parked machine are carried by the
/// [`WorkspacePorts`](hivekeep_ports::WorkspacePorts) that `ports` have by then.
///
/// # Errors
/// What a bridge needs and this host lacks, if there has to be one.
pub async fn open(
    options: Options,
    state_dir: PathBuf,
    journal: Journal,
    address: Address<Msg>,
    ports: Ports,
) -> Result<(NetworkHandle, Args), Error> {
    let (backend, _) = watch::channel(None);
    let tag = options.tag(&state_dir);
    let (subnet, chosen) = choose(&options, &tag, &journal).await;
    let shared = NetworkShared {
        tag,
        subnet,
        chosen,
        options,
        state_dir,
        events: journal.events(),
        journal,
        logs: Logs::default(),
        address,
        ports,
        backend,
        views: ArcSwap::default(),
        newest: AtomicU64::new(0),
        under_way: watch::channel(None).0,
        lock: OnceLock::new(),
    };
    if shared.options.mode == NetworkModeChoice::Bridge {
        start::possible(&shared).await?;
    }
    let shared = Arc::new(shared);
    Ok((NetworkHandle(shared.clone()), Args(shared)))
}

impl NetworkShared {
    /// A plan without members.
    pub(super) fn blank(&self) -> NetworkPlan {
        NetworkPlan::new(self.tag.clone(), self.subnet)
    }

    /// Waits until it is decided how machines are connected.
    pub(super) async fn backend(&self) -> Result<Arc<Backend>, ToolError> {
        let mut watch = self.backend.subscribe();
        let decided = watch.wait_for(Option::is_some);
        match tokio::time::timeout(BACKEND_PATIENCE, decided).await {
            Ok(Ok(backend)) => Ok(backend.clone().expect("it was waited for")),
            _ => {
                let waited = BACKEND_PATIENCE.as_secs();
                let message = format!("the network has not started within {waited} s");
                let unavailable =
                    ToolError::new(Layer::Machine, codes::NETWORK_UNAVAILABLE, message);
                Err(unavailable.next("`hivekeep ps` shows the network's state").retryable())
            }
        }
    }

    /// Waits until nothing is brought to a plan that is older than the newest: such a one may lack
    /// a workspace that is in by now, whose tap would be removed.
    pub(super) async fn no_older_plan(&self) {
        let newest = self.newest.load(SeqCst);
        let mut under_way = self.under_way.subscribe();
        // The shared itself holds the sender.
        let _ = under_way.wait_for(|plan| plan.is_none_or(|plan| plan >= newest)).await;
    }

    /// Tells the event bus; a full queue loses the event and says so later.
    pub(super) fn tell(&self, kind: &str, subject: impl ToString, data: Value) {
        let event = NewEvent { kind: kind.to_owned(), subject: subject.to_string(), data };
        let _counted_when_lost = self.events.publish_later(event);
    }
}

/// The subnet, and the hold on it where it was chosen now.
async fn choose(options: &Options, tag: &Tag, journal: &Journal) -> (Subnet, Option<OwnedFd>) {
    if let Some(subnet) = options.subnet {
        return (subnet, None);
    }
    let inhabited = inhabited(journal.clone()).await;
    if matches!(options.mode, NetworkModeChoice::User | NetworkModeChoice::Off) {
        return (inhabited.unwrap_or_default(), None);
    }
    if let Some((subnet, Ok(hold))) = inhabited.map(|subnet| (subnet, hold(subnet))) {
        return (subnet, Some(hold));
    }
    match free(options, tag).await {
        Ok(Some((subnet, hold))) => (subnet, Some(hold)),
        Ok(None) => (inhabited.unwrap_or_default(), None),
        Err(error) => {
            // The missing part is reported where a bridge is tried.
            tracing::debug!(%error, "no subnet was looked for");
            (inhabited.unwrap_or_default(), None)
        }
    }
}

/// Subnet of the recorded members, whose guests know their addresses. It stays theirs, unless another
/// daemon has it by now.
async fn inhabited(journal: Journal) -> Option<Subnet> {
    let members = tokio::task::spawn_blocking(move || change::load(&journal)).await;
    // Records that cannot be read are reported by the actor, which reads them next.
    let members = members.ok()?.ok()?;
    let of = |address| Subnet::choices().find(|subnet| subnet.is_guest(address));
    members.iter().find_map(|member| of(member.lease.address))
}

async fn free(options: &Options, tag: &Tag) -> Result<Option<(Subnet, OwnedFd)>, Error> {
    let enforcer = Enforcer::open(options.access())?;
    for subnet in Subnet::choices() {
        if !enforcer.is_free(&NetworkPlan::new(tag.clone(), subnet)).await? {
            continue;
        }
        match hold(subnet) {
            Ok(hold) => return Ok(Some((subnet, hold))),
            Err(Error::SubnetTaken(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Keeps other daemons from choosing what overlaps with a subnet.
///
/// # Errors
/// [`Error::SubnetTaken`].
pub(super) fn hold_all(subnet: Subnet) -> Result<Vec<OwnedFd>, Error> {
    Subnet::choices().filter(|one| one.overlaps(subnet.block())).map(hold).collect()
}

fn hold(subnet: Subnet) -> Result<OwnedFd, Error> {
    let held = reserve(&format!("hivekeep-subnet-{subnet}"))?;
    held.ok_or(Error::SubnetTaken(subnet))
}

/// Makes this process the one daemon of a tag in its network namespace, which is where the names
/// that begin with it are.
///
/// # Errors
/// [`Error::TagTaken`].
pub(super) fn hold_tag(tag: &Tag) -> Result<OwnedFd, Error> {
    reserve(&format!("hivekeep-network-{tag}"))?.ok_or_else(|| Error::TagTaken(tag.clone()))
}

/// A name of the network namespace, if nobody has it.
fn reserve(name: &str) -> Result<Option<OwnedFd>, Error> {
    let failed = |errno: Errno| Error::io(format!("reserve the name {name}"))(errno.into());
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    let socket = socket.map_err(failed)?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed)?;
    match bind(&socket, &address) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::ADDRINUSE) => Ok(None),
        Err(errno) => Err(failed(errno)),
    }
}
