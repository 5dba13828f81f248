//! The network as everybody else sees it: the kernel's port, and the condition that `hivekeep ps`
//! shows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hivekeep_kernel::{ToolError, WorkspaceId};
use hivekeep_ports::{
    ForwardedPort, InterfaceSettings, Netdev, Network, NetworkMode, NetworkRequest, NetworkView,
    ReachPolicy, ReachRules, Transport,
};
use serde_json::json;

use super::backend::Backend;
use super::shared::NetworkShared;
use super::{Inner, Msg, NetworkActor, Reply};
use crate::plan::{AddressLease, Egress, NetworkMember};
use crate::{Error, NetworkModeChoice, apply, error};

/// Time limit of an answer of the actor: above the journal's deadline, and that of nft.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which the previous holder may keep a tap.
const CABLE: Duration = Duration::from_secs(2);
/// Time limit of the worker for a plan.
const TURN: Duration = Duration::from_secs(20);

/// The network. Cheap to clone.
#[derive(Clone)]
pub struct NetworkHandle(pub(super) Arc<NetworkShared>);

impl NetworkHandle {
    /// Removes bridge, taps and rules, and gives uplinks their forwarding back, unless machines
    /// still hold their cables. Nothing is changed in the journal. For an ordered stop with all
    /// workspaces.
    pub async fn take_down(&self) {
        let asked = self.0.address.ask(PATIENCE, |done| Msg(Inner::TakeDown(done)));
        if let Err(error) = asked.await {
            tracing::warn!(%error, "the network stays");
        }
    }

    /// Asks once it is decided how machines are connected.
    async fn ask<T>(&self, question: impl FnOnce(Reply<T>) -> Inner) -> Result<T, ToolError> {
        self.0.backend().await?;
        self.ask_at_once(question).await
    }

    async fn ask_at_once<T>(
        &self,
        question: impl FnOnce(Reply<T>) -> Inner,
    ) -> Result<T, ToolError> {
        self.0.address.ask(PATIENCE, |reply| Msg(question(reply))).await?
    }

    /// Makes the tap if it is not there, and takes its end. Nothing passes until the worker has
    /// put its rules into force and joined it to the bridge.
    async fn tap(&self, id: WorkspaceId) -> Result<Netdev, ToolError> {
        let view = self.view(id).ok_or_else(|| error::not_in_network(id))?;
        let name = self.0.blank().tap(AddressLease::at(view.attachment.address));
        let busy = |_| ToolError::from(&Error::TapBusy { tap: name.clone() });
        tokio::time::timeout(TURN, self.0.no_older_plan()).await.map_err(busy)?;
        self.ask(|reply| Inner::MakeWay(id, reply)).await?;
        let until = Instant::now() + CABLE;
        loop {
            let name = name.clone();
            let taken = tokio::task::spawn_blocking(move || apply::cable(&name, None)).await;
            match taken.map_err(|error| ToolError::internal(error.to_string()))? {
                Ok(tap) => return Ok(Netdev::Tap(Arc::new(tap))),
                // The tap is still held by the waker that made way, by the worker, or by a machine that ends.
                Err(Error::TapBusy { .. }) if Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => return Err(ToolError::from(&error)),
            }
        }
    }
}

impl ReachRules for NetworkHandle {
    fn admits(&self, id: WorkspaceId, host: &str, port: u16) -> bool {
        let views = self.0.views.load();
        let Some(policy) = views.get(&id).map(|view| &view.policy) else { return false };
        let listed = |entry: &String| {
            entry.parse::<Egress>().is_ok_and(|entry| entry.admits_tcp(host, port))
        };
        policy.allow_internet || policy.egress_allow.iter().any(listed)
    }
}

#[async_trait]
impl Network for NetworkHandle {
    async fn mode(&self) -> Result<NetworkMode, ToolError> {
        Ok(self.0.backend().await?.mode())
    }

    async fn join(
        &self,
        id: WorkspaceId,
        request: NetworkRequest,
    ) -> Result<InterfaceSettings, ToolError> {
        self.ask(|reply| Inner::Join(id, request, reply)).await
    }

    async fn cable(&self, id: WorkspaceId) -> Result<Netdev, ToolError> {
        match &*self.0.backend().await? {
            Backend::Bridge { .. } => self.tap(id).await,
            Backend::User { .. } => {
                self.ask(|reply| Inner::HandOver(id, reply)).await.map(Netdev::User)
            }
            Backend::Off { reason } => Err(error::off(reason)),
        }
    }

    async fn settled(&self, id: WorkspaceId) -> Result<(), ToolError> {
        self.ask(|reply| Inner::Settled(id, reply)).await
    }

    async fn set_policy(
        &self,
        id: WorkspaceId,
        request: NetworkRequest,
    ) -> Result<ReachPolicy, ToolError> {
        self.ask(|reply| Inner::SetPolicy(id, request, reply)).await
    }

    async fn add_forward(
        &self,
        id: WorkspaceId,
        transport: Transport,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Result<ForwardedPort, ToolError> {
        let question = |reply| Inner::AddForward { id, transport, guest_port, host_port, reply };
        self.ask(question).await
    }

    async fn remove_forward(
        &self,
        id: WorkspaceId,
        transport: Transport,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Result<Vec<ForwardedPort>, ToolError> {
        let question = |reply| Inner::RemoveForward { id, transport, guest_port, host_port, reply };
        self.ask(question).await
    }

    async fn set_parked(&self, id: WorkspaceId, parked: bool) -> Result<(), ToolError> {
        self.ask(|reply| Inner::SetParked(id, parked, reply)).await
    }

    fn view(&self, id: WorkspaceId) -> Option<NetworkView> {
        self.0.views.load().get(&id).cloned()
    }

    async fn leave(&self, id: WorkspaceId) -> Result<(), ToolError> {
        self.ask_at_once(|reply| Inner::Leave(id, reply)).await
    }

    async fn retain(&self, ids: Vec<WorkspaceId>) -> Result<(), ToolError> {
        self.ask_at_once(|reply| Inner::Retain(ids, reply)).await
    }
}

impl std::fmt::Debug for NetworkHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetworkHandle").field("tag", &self.0.tag).finish_non_exhaustive()
    }
}

/// Present faults. Empty when all is well.
#[derive(Debug, Default)]
pub(super) struct Condition {
    /// The kernel does not follow the plan.
    pub(super) kernel: Option<String>,
    /// Guests are not served names.
    pub(super) names: Option<String>,
    /// Chains of others that drop by policy.
    pub(super) obstacles: Vec<String>,
    /// Last told.
    told: Vec<String>,
}

impl NetworkActor {
    /// Lets everyone see the members: as they are in force, or as they are going to be.
    pub(super) fn show(&self) {
        let Some(backend) = &self.backend else { return };
        let subnet = self.durable.subnet();
        let view = |(id, member): (_, &NetworkMember)| {
            let now = self.in_force.member(id).unwrap_or(member);
            let view = NetworkView {
                attachment: backend.attachment(member.lease, subnet),
                policy: ReachPolicy::from(&backend.in_force(&now.policy)),
                forwards: now.forwards.iter().copied().map(ForwardedPort::from).collect(),
            };
            (id, view)
        };
        let off = matches!(**backend, Backend::Off { .. });
        let members = self.durable.members().filter(|_| !off);
        self.shared.views.store(Arc::new(members.map(view).collect()));
    }

    fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if let Some(Backend::User { reason }) = self.backend.as_deref()
            && self.shared.options.mode != NetworkModeChoice::User
        {
            reasons.push(format!("no bridge: {reason}"));
        }
        if let Some(Backend::Bridge { report }) = self.backend.as_deref() {
            reasons.extend(report.broken().map(|f| format!("not proven: {:?}", f.property)));
            let unknown = report.unknown();
            reasons.extend(unknown.map(|f| format!("not yet proven: {:?}", f.property)));
        }
        let Condition { kernel, names, obstacles, .. } = &self.condition;
        reasons.extend(kernel.clone());
        reasons.extend(names.as_ref().map(|why| format!("names are not served: {why}")));
        if self.durable.leaves_the_host() {
            let drops = |chain: &String| format!("`{chain}` of others drops by policy");
            reasons.extend(obstacles.iter().map(drops));
        }
        reasons.extend(self.held.lost().map(str::to_owned));
        reasons
    }

    /// Shows it, and tells of it when it changes.
    pub(super) fn say_condition(&mut self) {
        let reasons = self.reasons();
        let kind = match self.backend.as_deref() {
            Some(Backend::Bridge { .. }) => "bridge",
            Some(Backend::User { .. }) => "user mode",
            Some(Backend::Off { .. }) | None => "off",
        };
        let state = match reasons.is_empty() {
            true => format!("running, {kind}"),
            false => format!("degraded, {kind}: {}", reasons.join("; ")),
        };
        self.me.address.probe().set_state(state);
        if reasons == self.condition.told {
            return;
        }
        match reasons.is_empty() {
            true => self.shared.tell("network.recovered", "host", json!({})),
            false => self.shared.tell("network.degraded", "host", json!({ "reasons": reasons })),
        }
        self.condition.told = reasons;
    }
}
