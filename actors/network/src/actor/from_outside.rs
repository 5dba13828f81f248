//! Traffic from outside to members: ports of forwards that are held, and packets that wake a parked
//! machine.

use hivekeep_kernel::WorkspaceId;
use serde_json::json;

use super::acceptor::{Acceptor, ForwardTarget};
use super::backend::Backend;
use super::wake_on_lan::{WakeOnLan, WakeTarget};
use super::{NetworkActor, convert};
use crate::plan::{AddressLease, Forward, NetworkMember, Protocol};

impl NetworkActor {
    /// Takes the ports of forwards that are not held, and reports those that it cannot have.
    pub(super) fn hold_ports(&mut self) {
        for (id, forward, why) in self.held.take_all(&self.decided) {
            self.tell_lost(id, &forward, &why);
        }
        let parked = self.decided.members().filter(|(_, member)| member.parked);
        let parked: Vec<_> = parked.map(|(id, _)| id).collect();
        parked.into_iter().for_each(|id| self.accept_for(id));
    }

    fn tell_lost(&self, id: WorkspaceId, forward: &Forward, why: &str) {
        tracing::warn!(workspace = %id, %why, "a forward's port is not held");
        let data = json!({ "forward": convert::forward(forward), "reason": why });
        self.shared.tell("network.port_lost", id, data);
    }

    /// Has connections to a member's forwards accepted while its machine is parked. This comes
    /// before the kernel leads none there, and ends behind that it does again.
    pub(super) fn accept_for(&mut self, id: WorkspaceId) {
        let protocols = match self.backend.as_deref() {
            // The backend decides who has the ports, and is not known yet.
            None => return,
            Some(Backend::Bridge { .. }) => &[Protocol::Tcp][..],
            Some(_) => &[Protocol::Tcp, Protocol::Udp],
        };
        if self.decided.member(id).is_none() {
            // The waker ends before its tap is removed.
            self.wakers.remove(&id);
        }
        let begin = |forward: &Forward| {
            let Forward { protocol, guest_port, .. } = *forward;
            let ports = self.shared.ports.clone();
            let (acceptor, work) =
                Acceptor::new(ForwardTarget { workspace: id, protocol, guest_port, ports });
            let _detached = self.me.workers.spawn(work);
            acceptor
        };
        for (forward, why) in self.held.accept(id, self.decided.member(id), protocols, begin) {
            self.tell_lost(id, &forward, &why);
        }
    }

    /// Has packets to machines that are parked, as the kernel knows it, wake them. Those that go on
    /// get what came meanwhile.
    pub(super) fn wake_by_packets(&mut self) {
        if self.orders.is_none() {
            // Everything is being taken down, and who holds a tap would keep it.
            return;
        }
        let parked = |member: Option<&NetworkMember>| member.is_some_and(|member| member.parked);
        let in_force = self.in_force.clone();
        let awake = self.wakers.extract_if(.., |id, _| !parked(in_force.member(*id)));
        awake.for_each(|(_, waker)| waker.awake());
        for (id, member) in in_force.members().filter(|(_, member)| parked(Some(member))) {
            if self.wakers.contains_key(&id) || !parked(self.decided.member(id)) {
                continue;
            }
            let AddressLease { mac, .. } = member.lease;
            let (tap, ports) = (in_force.tap(member.lease), self.shared.ports.clone());
            let (waker, work) = WakeOnLan::new(WakeTarget { workspace: id, tap, mac, ports });
            let _detached = self.me.workers.spawn(work);
            self.wakers.insert(id, waker);
        }
    }
}
