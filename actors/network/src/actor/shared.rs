//! State that the actor and its handles share; it outlives the actor's restarts.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use hivekeep_kernel::ports::NetworkView;
use hivekeep_kernel::{Address, Layer, ToolError, WorkspaceId};
use hivekeep_runtime::Ports;
use hivekeep_store::{Events, Journal, NewEvent};
use serde_json::Value;
use tokio::sync::watch;

use super::Msg;
use super::backend::Backend;
use super::records::Logs;
use crate::plan::{NetworkPlan, Subnet, Tag};
use crate::{Options, codes};

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
