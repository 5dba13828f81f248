//! Decisions on requests, made against the state that earlier decisions led to.

use std::net::SocketAddrV4;
use std::sync::Arc;

use hivekeep_kernel::{ToolError, WorkspaceId};
use hivekeep_ports::{ForwardedPort, InterfaceSettings, NetworkRequest, ReachPolicy, Transport};

use super::backend::{Backend, same_end};
use super::change::{Change, When};
use super::{NetworkActor, Reply};
use crate::error;
use crate::plan::{Forward, MAX_FORWARDS, MemberPolicy, NetworkMember, PlanError, Protocol};
use crate::ports::PortReservation;

/// Answers a refusal, or goes on. Whoever asked may have gone.
macro_rules! or_refuse {
    ($reply:expr, $decision:expr) => {
        match $decision {
            Ok(value) => value,
            Err(error) => {
                let _ = $reply.send(Err(error));
                return;
            }
        }
    };
}

impl NetworkActor {
    pub(super) fn join(
        &mut self,
        id: WorkspaceId,
        request: NetworkRequest,
        reply: Reply<InterfaceSettings>,
    ) {
        let (change, attachment) = or_refuse!(reply, self.decide_join(id, request));
        self.enact(change.answering(When::Durable, reply, attachment));
    }

    fn decide_join(
        &mut self,
        id: WorkspaceId,
        request: NetworkRequest,
    ) -> Result<(Change, InterfaceSettings), ToolError> {
        let backend = self.standing()?;
        let before = self.decided.member(id).cloned();
        let fresh = || -> Result<NetworkMember, ToolError> {
            let options = &self.shared.options;
            let policy = MemberPolicy {
                allow_internet: options.default_allow_internet,
                allow_inter_vm: options.default_allow_inter_vm,
                ..MemberPolicy::default()
            };
            let lease = self.decided.allot(id)?;
            Ok(NetworkMember { lease, policy, forwards: Vec::new(), parked: false })
        };
        let mut after = before.clone().map_or_else(fresh, Ok)?;
        after.policy = after.policy.changed(request)?;
        backend.keeps(&after.policy)?;
        self.decided.admit(id, after.clone())?;
        let attachment = backend.attachment(after.lease, self.decided.subnet());
        Ok((Change::quiet(id, before, Some(after)), attachment))
    }

    pub(super) fn set_policy(
        &mut self,
        id: WorkspaceId,
        request: NetworkRequest,
        reply: Reply<ReachPolicy>,
    ) {
        let (change, policy) = or_refuse!(reply, self.decide_policy(id, request));
        self.enact(change.answering(When::Applied, reply, policy));
    }

    fn decide_policy(
        &mut self,
        id: WorkspaceId,
        request: NetworkRequest,
    ) -> Result<(Change, ReachPolicy), ToolError> {
        let backend = self.standing()?;
        let before = self.member(id)?;
        let policy = before.policy.changed(request)?;
        backend.keeps(&policy)?;
        let after = NetworkMember { policy, ..before.clone() };
        self.decided.admit(id, after.clone())?;
        let policy = ReachPolicy::from(&after.policy);
        Ok((Change::quiet(id, Some(before), Some(after)), policy))
    }

    pub(super) fn add_forward(
        &mut self,
        id: WorkspaceId,
        transport: Transport,
        guest_port: u16,
        host_port: Option<u16>,
        reply: Reply<ForwardedPort>,
    ) {
        let protocol = Protocol::from(transport);
        let decision = self.decide_forward(id, protocol, guest_port, host_port);
        let (change, forward) = or_refuse!(reply, decision);
        self.enact(change.answering(When::Applied, reply, forward.into()));
    }

    /// The port is taken from other programs before anything is written.
    fn decide_forward(
        &mut self,
        id: WorkspaceId,
        protocol: Protocol,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Result<(Change, Forward), ToolError> {
        self.standing()?.forwards()?;
        let before = self.member(id)?;
        if before.forwards.len() >= MAX_FORWARDS {
            let (what, limit) = ("port forwards", MAX_FORWARDS);
            return Err(PlanError::TooMany { what, limit }.into());
        }
        let host_ip = self.shared.options.forward_host_ip;
        let forward = |host_port| Forward { host_ip, host_port, guest_port, protocol };
        if guest_port == 0 || host_port == Some(0) {
            return Err(ToolError::invalid("0 is not a valid port"));
        }
        let forward = match host_port {
            Some(port) => {
                let forward = forward(port);
                if let Some(by) = self.who_has(&forward) {
                    return Err(PlanError::PortTaken { protocol, host_port: port, by }.into());
                }
                self.held.take(id, &forward).map_err(|error| ToolError::from(&error))?;
                forward
            }
            None => {
                let used = |port| self.who_has(&forward(port)).is_some();
                let range = self.shared.options.forward_ports();
                let held = PortReservation::automatic(host_ip, protocol, range, used);
                let held = held.map_err(|error| ToolError::from(&error))?;
                let forward = forward(SocketAddrV4::port(&held.at()));
                self.held.keep(id, held);
                forward
            }
        };
        let mut after = before.clone();
        after.forwards.push(forward);
        self.decided.admit(id, after.clone())?;
        Ok((Change::quiet(id, Some(before), Some(after)), forward))
    }

    /// The workspace whose forward, decided or still in force, has the host's port.
    fn who_has(&self, forward: &Forward) -> Option<WorkspaceId> {
        let all = self.decided.members().chain(self.in_force.members());
        let mut taken = all.filter(|(_, m)| m.forwards.iter().any(|one| same_end(one, forward)));
        taken.next().map(|(id, _)| id)
    }

    pub(super) fn remove_forward(
        &mut self,
        id: WorkspaceId,
        transport: Transport,
        guest_port: u16,
        host_port: Option<u16>,
        reply: Reply<Vec<ForwardedPort>>,
    ) {
        let protocol = Protocol::from(transport);
        let meant = |forward: &Forward| {
            (forward.protocol, forward.guest_port) == (protocol, guest_port)
                && host_port.is_none_or(|port| port == forward.host_port)
        };
        let before = or_refuse!(reply, self.standing().and_then(|_| self.member(id)));
        let (gone, forwards): (Vec<_>, Vec<_>) = before.forwards.iter().copied().partition(meant);
        if gone.is_empty() {
            let _ = reply.send(Err(error::forward_not_found(protocol, guest_port)));
            return;
        }
        let after = NetworkMember { forwards, ..before.clone() };
        or_refuse!(reply, self.decided.admit(id, after.clone()).map_err(ToolError::from));
        let gone = gone.into_iter().map(ForwardedPort::from).collect();
        let change = Change::quiet(id, Some(before), Some(after));
        self.enact(change.answering(When::Applied, reply, gone));
    }

    /// The machine of a member is parked, or goes on.
    pub(super) fn set_parked(&mut self, id: WorkspaceId, parked: bool, reply: Reply<()>) {
        let Some(before) = self.decided.member(id).cloned() else {
            // No rule leads to the machine. Whoever asked may have gone.
            let _ = reply.send(Ok(()));
            return;
        };
        if before.parked == parked {
            // Repeated, as at each start of a machine: no change, but the last one may still be on its way.
            if self.orders.is_some() && self.applied < self.generation {
                return self.settling.push((self.generation, reply));
            }
            // Whoever asked may have gone.
            let _ = reply.send(Ok(()));
            return;
        }
        let after = NetworkMember { parked, ..before.clone() };
        or_refuse!(reply, self.decided.admit(id, after.clone()).map_err(ToolError::from));
        if let (Some(Backend::User { .. }), false) = (self.backend.as_deref(), parked) {
            self.held.hand_over(id, &after);
        }
        let change = Change::quiet(id, Some(before), Some(after));
        self.enact(change.answering(When::Applied, reply, ()));
    }

    /// In user mode: lets go of the ports that a machine is about to take, and says which.
    pub(super) fn hand_over(&mut self, id: WorkspaceId, reply: Reply<Vec<ForwardedPort>>) {
        let backend = or_refuse!(reply, self.standing());
        let member = or_refuse!(reply, self.member(id));
        or_refuse!(reply, backend.keeps(&member.policy));
        if member.parked {
            // A parked machine takes its ports when it goes on.
            let _ = reply.send(Ok(Vec::new()));
            return;
        }
        self.held.hand_over(id, &member);
        let forwards = member.forwards.into_iter().map(ForwardedPort::from).collect();
        // Whoever asked may have gone.
        let _ = reply.send(Ok(forwards));
    }

    /// A machine is about to take its tap.
    pub(super) fn make_way(&self, id: WorkspaceId, reply: Reply<()>) {
        if let Some(waker) = self.wakers.get(&id) {
            waker.make_way();
        }
        // Whoever asked may have gone.
        let _ = reply.send(Ok(()));
    }

    pub(super) fn settled(&mut self, id: WorkspaceId, reply: Reply<()>) {
        or_refuse!(reply, self.standing());
        or_refuse!(reply, self.durable.member(id).ok_or_else(|| error::not_in_network(id)));
        if self.applied >= self.generation {
            // Whoever asked may have gone.
            let _ = reply.send(Ok(()));
        } else {
            self.settling.push((self.generation, reply));
        }
    }

    pub(super) fn leave(&mut self, id: WorkspaceId, reply: Reply<()>) {
        // Also for one that is not in: it may be on its way out, not durably yet.
        let before = self.decided.dismiss(id);
        self.enact(Change::quiet(id, before, None).answering(When::Durable, reply, ()));
    }

    pub(super) fn retain(&mut self, ids: &[WorkspaceId], reply: Reply<()>) {
        let all = self.decided.members().map(|(id, _)| id);
        let gone: Vec<_> = all.filter(|id| !ids.contains(id)).collect();
        for id in &gone {
            tracing::info!(workspace = %id, "no workspace has this place in the network any more");
            let before = self.decided.dismiss(*id);
            self.unwritten.push(Change::quiet(*id, before, None));
        }
        // Answered behind these changes, in the same turn.
        let last = gone.first().copied().unwrap_or_else(WorkspaceId::new);
        self.enact(Change::quiet(last, None, None).answering(When::Durable, reply, ()));
    }

    fn standing(&self) -> Result<Arc<Backend>, ToolError> {
        match self.backend.clone() {
            Some(backend) => match &*backend {
                Backend::Off { reason } => Err(error::off(reason)),
                _ => Ok(backend),
            },
            None => Err(error::off("it is starting").retryable()),
        }
    }

    fn member(&self, id: WorkspaceId) -> Result<NetworkMember, ToolError> {
        self.decided.member(id).cloned().ok_or_else(|| error::not_in_network(id))
    }
}
