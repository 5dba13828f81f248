//! Proves with packets that the rules hold on this kernel.
//!
//! ```text
//!   world ── veth ── host ── bridge ═ tap ═ stand-in a
//!   198.51.100.1     the rules,      └════ tap ═ stand-in b
//!   and others       as in earnest
//! ```
//! Everything happens in network namespaces without names: they and all that is in them are gone
//! when the test ends, also when its process is killed, and the host's own network is never
//! touched. The host's part is set up by the same [`crate::Enforcer`] as the real one; a stand-in
//! is what a machine is to the host, a process that holds a tap.
//!
//! A property holds when what it forbids did not arrive and, with the same packets and the policy
//! that allows them, what it allows did. What does not hold must be refused by the caller.

pub mod frames;
mod names;
mod outside;
mod peers;
pub mod talk;
pub mod test_guest;
pub mod test_network;

use std::net::SocketAddrV4;

use hivekeep_kernel::WorkspaceId;
use serde::{Deserialize, Serialize};

pub use crate::plan::member::NetworkProperty;
use crate::plan::{Forward, MemberPolicy, NetworkMember, NetworkPlan, Subnet};
use crate::{Error, HostAccess, Namespace};
use talk::{PATIENCE, QUIET, TestServer};
use test_guest::TestGuest;
use test_network::TestNetwork;

type Check = fn(&mut Scene) -> Result<(), Error>;

/// Every property and its check.
const ALL: [(NetworkProperty, Check); 11] = [
    (NetworkProperty::GuestsApart, peers::apart),
    (NetworkProperty::InterVm, peers::together),
    (NetworkProperty::Groups, peers::groups),
    (NetworkProperty::SendersAreTrue, peers::true_ones),
    (NetworkProperty::Internet, outside::internet),
    (NetworkProperty::PrivateNetworks, outside::private),
    (NetworkProperty::HostIsClosed, outside::host),
    (NetworkProperty::Forwards, outside::forwards),
    (NetworkProperty::AllowedNames, names::names),
    (NetworkProperty::PolicyChanges, outside::changes),
    (NetworkProperty::EmptyFilter, outside::empty),
];

/// The port that servers of checks listen at.
const PORT: u16 = 7070;

/// Result of checking a property on this kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyFinding {
    /// The property.
    pub property: NetworkProperty,
    /// True when every packet went, or did not go, as promised.
    pub holds: bool,
    /// The check could not run to its end, and until then all was as promised. It says nothing of
    /// this kernel.
    #[serde(default)]
    pub unknown: bool,
    /// The attempts and their results.
    pub evidence: Vec<String>,
}

impl PropertyFinding {
    /// The main evidence, for people: a broken promise, or the reason why nothing was seen.
    pub fn reason(&self) -> &str {
        let says = |word: &str| self.evidence.iter().find(|line| line.starts_with(word));
        says("BROKEN").or_else(|| says("UNKNOWN")).map_or("", String::as_str)
    }

    fn unseen(property: NetworkProperty, error: &Error) -> Self {
        let evidence = vec![format!("UNKNOWN: the test network was not set up: {error}")];
        Self { property, holds: false, unknown: true, evidence }
    }
}

/// All properties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTestReport {
    /// In the order of [`NetworkProperty`].
    pub findings: Vec<PropertyFinding>,
}

impl SelfTestReport {
    /// True when a property was proven.
    pub fn holds(&self, property: NetworkProperty) -> bool {
        self.findings.iter().any(|finding| finding.property == property && finding.holds)
    }

    /// Findings of properties that do not hold, with the evidence.
    pub fn broken(&self) -> impl Iterator<Item = &PropertyFinding> {
        self.findings.iter().filter(|finding| !finding.holds && !finding.unknown)
    }

    /// Findings of properties that could not be checked.
    pub fn unknown(&self) -> impl Iterator<Item = &PropertyFinding> {
        self.findings.iter().filter(|finding| finding.unknown)
    }

    /// Takes in what a later run found.
    pub(crate) fn renew(&mut self, later: Self) {
        for finding in later.findings {
            match self.findings.iter_mut().find(|old| old.property == finding.property) {
                Some(old) => *old = finding,
                None => self.findings.push(finding),
            }
        }
    }
}

/// Runs all checks at once; takes some seconds. What could not be checked is tried once more.
/// Dropping the future does not end it early.
///
/// # Errors
/// When the stage cannot be set up: [`Error::NotPermitted`], [`Error::NftMissing`], or a kernel
/// that does not take the rules. A check that fails is a finding, not an error.
pub async fn run(options: HostAccess) -> Result<SelfTestReport, Error> {
    let mut report = some(options.clone(), |_| true).await?;
    let unknown: Vec<_> = report.unknown().map(|finding| finding.property).collect();
    if !unknown.is_empty() {
        report.renew(some(options, move |property| unknown.contains(&property)).await?);
    }
    Ok(report)
}

/// Runs some of the checks, as [`run`] does.
pub(crate) async fn some(
    options: HostAccess,
    which: impl Fn(NetworkProperty) -> bool + Send + 'static,
) -> Result<SelfTestReport, Error> {
    let work = tokio::task::spawn_blocking(move || {
        // A scene and a thread for each: they mostly wait for what must not arrive.
        let one = |(property, check): (NetworkProperty, Check)| {
            let mut scene = match Scene::new(options.clone()) {
                Ok(scene) => scene,
                Err(error) if error.is_passing() => {
                    return Ok(PropertyFinding::unseen(property, &error));
                }
                Err(error) => return Err(error),
            };
            let outcome = check(&mut scene);
            Ok(scene.finding(property, outcome))
        };
        std::thread::scope(|scope| {
            let wanted = ALL.into_iter().filter(|(property, _)| which(*property));
            let running: Vec<_> = wanted.map(|each| scope.spawn(move || one(each))).collect();
            let joined = running.into_iter().map(|thread| match thread.join() {
                Ok(finding) => finding,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            let findings: Result<Vec<PropertyFinding>, Error> = joined.collect();
            findings.map(|findings| SelfTestReport { findings })
        })
    });
    work.await.map_err(|error| Error::io("run the self-test")(std::io::Error::other(error)))?
}

/// Two guests without any rights on a test network, and notes on what happened to them.
struct Scene {
    stage: TestNetwork,
    network: NetworkPlan,
    a: WorkspaceId,
    b: WorkspaceId,
    notes: Vec<String>,
    holds: bool,
}

impl Scene {
    fn new(options: HostAccess) -> Result<Self, Error> {
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
    fn finding(mut self, property: NetworkProperty, outcome: Result<(), Error>) -> PropertyFinding {
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
