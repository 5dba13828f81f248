//! Traffic from outside to members: the host's ends of all forwards, held from other programs, and
//! packets that wake a parked machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;

use hivekeep_kernel::WorkspaceId;
use hivekeep_ports::ForwardedPort;
use serde_json::json;

use super::NetworkActor;
use super::acceptor::{Acceptor, ForwardTarget};
use super::backend::Backend;
use super::wake_on_lan::{WakeOnLan, WakeTarget};
use crate::Error;
use crate::plan::{AddressLease, Forward, NetworkMember, NetworkPlan, Protocol};
use crate::ports::PortReservation;

type End = (Protocol, SocketAddrV4);
type Led = (WorkspaceId, End, u16);

fn end(forward: &Forward) -> End {
    (forward.protocol, forward.host())
}

fn led(id: WorkspaceId, forward: &Forward) -> Led {
    (id, end(forward), forward.guest_port)
}

/// The host's ends of forwards that are held, and those that should be and are not.
#[derive(Debug, Default)]
pub(super) struct HeldPorts {
    ends: BTreeMap<End, PortReservation>,
    /// Ends that could not be taken, each with the reason.
    lost: BTreeMap<End, String>,
    /// Workspaces whose machines have, or may have, their ports themselves, in user mode.
    with_machines: BTreeSet<WorkspaceId>,
    /// Acceptors of forwards whose machine is parked, or was.
    acceptors: BTreeMap<Led, Acceptor>,
}

impl HeldPorts {
    /// Takes the ends of all forwards that are not held yet. Those that could not be taken, each
    /// once as long as it lasts.
    fn take_all(&mut self, network: &NetworkPlan) -> Vec<(WorkspaceId, Forward, String)> {
        let mut newly_lost = Vec::new();
        for (id, member) in network.members() {
            if self.with_machines.contains(&id) {
                continue;
            }
            for forward in &member.forwards {
                let end = end(forward);
                if self.ends.contains_key(&end) {
                    continue;
                }
                match PortReservation::take(forward.host(), forward.protocol) {
                    Ok(held) => {
                        self.lost.remove(&end);
                        self.ends.insert(end, held);
                    }
                    Err(error) => {
                        let why = error.to_string();
                        if self.lost.insert(end, why.clone()).as_ref() != Some(&why) {
                            newly_lost.push((id, *forward, why));
                        }
                    }
                }
            }
        }
        newly_lost
    }

    /// Takes the end of a forward that is going to be.
    ///
    /// # Errors
    /// As [`PortReservation::take`].
    pub(super) fn take(&mut self, id: WorkspaceId, forward: &Forward) -> Result<(), Error> {
        let end = end(forward);
        if !self.ends.contains_key(&end) {
            let held = PortReservation::take(forward.host(), forward.protocol)?;
            self.keep(id, held);
        }
        Ok(())
    }

    /// Keeps an end; one whose machine takes it itself was only tried.
    pub(super) fn keep(&mut self, id: WorkspaceId, held: PortReservation) {
        if !self.with_machines.contains(&id) {
            self.ends.insert((held.protocol(), held.at()), held);
        }
    }

    /// In user mode, releases the ports of a machine that is about to take them itself.
    pub(super) fn hand_over(&mut self, id: WorkspaceId, member: &NetworkMember) {
        self.with_machines.insert(id);
        for forward in &member.forwards {
            if let Some(acceptor) = self.acceptors.get(&led(id, forward)) {
                acceptor.rest();
            }
            self.ends.remove(&end(forward));
        }
    }

    /// Has the forwards of a member accepted while it is parked, and ends what leads to those that
    /// it has no more. Those that could not be, each once with the reason. `protocols`: of which what
    /// comes is not led to a tap.
    fn accept(
        &mut self,
        id: WorkspaceId,
        member: Option<&NetworkMember>,
        protocols: &[Protocol],
        begin: impl Fn(&Forward) -> Acceptor,
    ) -> Vec<(Forward, String)> {
        let forwards = member.map_or(&[][..], |member| &member.forwards);
        let is_led = |one: &Led| forwards.iter().any(|forward| led(id, forward) == *one);
        self.acceptors.retain(|one, _| one.0 != id || is_led(one));
        if !member.is_some_and(|member| member.parked) {
            return Vec::new();
        }
        // In user mode the machine had the ports until now.
        self.with_machines.remove(&id);
        let mut failed = Vec::new();
        for forward in forwards.iter().filter(|forward| protocols.contains(&forward.protocol)) {
            let listens = self.take(id, forward).and_then(|()| {
                let acceptor = self.acceptors.entry(led(id, forward));
                acceptor.or_insert_with(|| begin(forward)).listen(&self.ends[&end(forward)])
            });
            let why = listens.err().map(|error| error.to_string());
            let before = match &why {
                Some(why) => self.lost.insert(end(forward), why.clone()),
                None => self.lost.remove(&end(forward)),
            };
            failed.extend(why.filter(|why| before.as_ref() != Some(why)).map(|it| (*forward, it)));
        }
        failed
    }

    /// Ends the listening for those that are not parked any more.
    pub(super) fn rest(&self, network: &NetworkPlan) {
        let awake = |id| network.member(id).is_none_or(|member| !member.parked);
        self.acceptors.iter().filter(|(one, _)| awake(one.0)).for_each(|(_, one)| one.rest());
    }

    /// Lets go of what is nobody's any more.
    pub(super) fn keep_only(&mut self, network: &NetworkPlan) {
        let members = || network.members().flat_map(|(_, member)| &member.forwards);
        let wanted: BTreeSet<End> = members().map(end).collect();
        self.ends.retain(|end, _| wanted.contains(end));
        self.lost.retain(|end, _| wanted.contains(end));
        self.with_machines.retain(|id| network.member(*id).is_some());
    }

    /// The reasons why ends are not held, for people.
    pub(super) fn lost(&self) -> impl Iterator<Item = &str> {
        self.lost.values().map(String::as_str)
    }
}

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
        let data = json!({ "forward": ForwardedPort::from(*forward), "reason": why });
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::plan::{MemberPolicy, Subnet};

    fn with_forward(port: u16) -> (NetworkPlan, WorkspaceId, Forward) {
        let mut network = NetworkPlan::new("hk".parse().unwrap(), Subnet::default());
        let id = WorkspaceId::new();
        let (host_ip, protocol) = ([127, 0, 0, 1].into(), Protocol::Tcp);
        let forward = Forward { host_ip, host_port: port, guest_port: 80, protocol };
        let lease = network.allot(id).unwrap();
        let member = NetworkMember {
            lease,
            policy: MemberPolicy::default(),
            forwards: vec![forward],
            parked: false,
        };
        network.admit(id, member).unwrap();
        (network, id, forward)
    }

    #[test]
    fn a_port_that_is_lost_is_told_once_and_taken_when_it_is_free() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = other.local_addr().unwrap();
        let (network, id, forward) = with_forward(at.port());
        let mut held = HeldPorts::default();
        let newly_lost = held.take_all(&network);
        assert!(matches!(&newly_lost[..], [(who, which, _)] if *who == id && *which == forward));
        assert_eq!(held.take_all(&network), []);
        assert_eq!(held.lost().count(), 1);
        drop(other);
        assert_eq!(held.take_all(&network), []);
        assert_eq!(held.lost().count(), 0);
        assert!(TcpListener::bind(at).is_err());
        held.keep_only(&NetworkPlan::new("hk".parse().unwrap(), Subnet::default()));
        TcpListener::bind(at).unwrap();
    }

    #[test]
    fn a_machine_takes_its_ports_itself() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (network, id, forward) = with_forward(free.port());
        let mut held = HeldPorts::default();
        assert_eq!(held.take_all(&network), []);
        assert!(TcpListener::bind(free).is_err());
        held.hand_over(id, network.member(id).unwrap());
        let machine = TcpListener::bind(free).unwrap();
        assert_eq!(held.take_all(&network), []);
        assert!(held.take(id, &forward).is_err());
        drop(machine);
        held.take(id, &forward).unwrap();
        TcpListener::bind(free).unwrap();
    }
}
