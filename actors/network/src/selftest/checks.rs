//! The checks, one for each property.

mod egress;
mod empty;
mod forwards;
mod groups;
mod names;
mod peers;
mod senders;

use std::net::SocketAddrV4;

use hivekeep_kernel::WorkspaceId;

use super::talk::{self, PATIENCE, QUIET, TestServer};
use super::test_guest::TestGuest;
use super::test_network::TestNetwork;
use super::{NetworkProperty, PropertyFinding};
use crate::plan::{Forward, MemberPolicy, NetworkMember, NetworkPlan, Subnet};
use crate::{Error, HostAccess, Namespace};

pub(super) type Check = fn(&mut Scene) -> Result<(), Error>;

/// Every property and its check.
pub(super) const ALL: [(NetworkProperty, Check); 11] = [
    (NetworkProperty::GuestsApart, peers::apart),
    (NetworkProperty::InterVm, peers::together),
    (NetworkProperty::Groups, groups::groups),
    (NetworkProperty::SendersAreTrue, senders::true_ones),
    (NetworkProperty::Internet, egress::internet),
    (NetworkProperty::PrivateNetworks, egress::private),
    (NetworkProperty::HostIsClosed, egress::host),
    (NetworkProperty::Forwards, forwards::forwards),
    (NetworkProperty::AllowedNames, names::names),
    (NetworkProperty::PolicyChanges, egress::changes),
    (NetworkProperty::EmptyFilter, empty::empty),
];

/// The port that servers of checks listen at.
const PORT: u16 = 7070;

/// Two guests without any rights on a test network, and notes on what happened to them.
pub(super) struct Scene {
    stage: TestNetwork,
    network: NetworkPlan,
    a: WorkspaceId,
    b: WorkspaceId,
    notes: Vec<String>,
    holds: bool,
}

impl Scene {
    pub(super) fn new(options: HostAccess) -> Result<Self, Error> {
        let mut network = NetworkPlan::new("self".parse()?, Subnet::default());
        let [a, b] = [(); 2].map(|()| WorkspaceId::new());
        for id in [a, b] {
            let lease = network.allot(id)?;
            network.admit(
                id,
                NetworkMember {
                    lease,
                    policy: MemberPolicy::default(),
                    forwards: Vec::new(),
                    parked: false,
                },
            )?;
        }
        let mut stage = TestNetwork::new(options)?;
        stage.ensure(&network)?;
        stage.plug(&network, a)?;
        stage.plug(&network, b)?;
        Ok(Self { stage, network, a, b, notes: Vec::new(), holds: true })
    }

    /// Whether everything went as promised, and what was seen. A check that could not go on has
    /// seen nothing that was not.
    pub(super) fn finding(
        mut self,
        property: NetworkProperty,
        outcome: Result<(), Error>,
    ) -> PropertyFinding {
        let mut unknown = false;
        match outcome {
            Ok(()) => {}
            Err(error) if error.is_passing() => {
                unknown = self.holds;
                self.holds = false;
                self.notes.push(format!("UNKNOWN: the check itself: failed: {error}"));
            }
            Err(error) => self.expect("the check itself", false, format!("failed: {error}")),
        }
        PropertyFinding { property, holds: self.holds, unknown, evidence: self.notes }
    }

    fn a(&self) -> &TestGuest {
        self.stage.guest(self.a)
    }

    fn b(&self) -> &TestGuest {
        self.stage.guest(self.b)
    }

    /// Gives a member a policy and has the host follow it.
    fn policy(&mut self, id: WorkspaceId, policy: MemberPolicy) -> Result<(), Error> {
        let mut member = self.network.member(id).ok_or(Error::NoMember(id))?.clone();
        member.policy = policy;
        self.network.admit(id, member)?;
        self.stage.ensure(&self.network).map(drop)
    }

    /// Gives a member forwards and has the host follow them.
    fn forwards(&mut self, id: WorkspaceId, forwards: Vec<Forward>) -> Result<(), Error> {
        let mut member = self.network.member(id).ok_or(Error::NoMember(id))?.clone();
        member.forwards = forwards;
        self.network.admit(id, member)?;
        self.stage.ensure(&self.network).map(drop)
    }

    fn expect(&mut self, what: &str, as_promised: bool, seen: impl std::fmt::Display) {
        self.holds &= as_promised;
        let word = if as_promised { "ok" } else { "BROKEN" };
        self.notes.push(format!("{word}: {what}: {seen}"));
    }

    /// Nothing gets through, neither TCP nor UDP, and the server hears nothing.
    fn closed(&mut self, what: &str, from: Side, to: SocketAddrV4, server: &TestServer) {
        let before = server.received("");
        let side = self.side(from);
        let (tcp, udp) = std::thread::scope(|scope| {
            let tcp = scope.spawn(|| talk::tcp(side, to, QUIET));
            let udp = talk::udp(side, to, QUIET);
            (tcp.join().unwrap_or(Err("panicked".into())), udp)
        });
        let silent = server.received("") == before;
        let seen = format!("tcp {tcp:?}, udp {udp:?}, the server heard nothing: {silent}");
        self.expect(what, tcp.is_err() && udp.is_err() && silent, seen);
    }

    /// TCP and UDP get through and are answered.
    fn open(&mut self, what: &str, from: Side, to: SocketAddrV4) {
        let tcp = talk::tcp(self.side(from), to, PATIENCE);
        let udp = talk::udp(self.side(from), to, PATIENCE);
        self.expect(what, tcp.is_ok() && udp.is_ok(), format!("tcp {tcp:?}, udp {udp:?}"));
    }

    fn side(&self, side: Side) -> &Namespace {
        match side {
            Side::A => &self.a().inside,
            Side::B => &self.b().inside,
            Side::Host => &self.stage.host,
            Side::World => &self.stage.world,
        }
    }
}

/// Origin of packets.
#[derive(Debug, Clone, Copy)]
enum Side {
    A,
    B,
    Host,
    World,
}
