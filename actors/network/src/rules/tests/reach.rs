//! What the rules say of a packet between guests, followed rule by rule as the kernel does.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use hivekeep_kernel::WorkspaceId;
use proptest::prelude::*;
use serde_json::Value;

use super::{networks, rules};
use crate::plan::{MemberPolicy, NetworkMember, NetworkPlan, Subnet};
use crate::rules::{RulesTable, Ruleset};

/// A packet of a connection from one guest to another one.
#[derive(Debug, Clone, Copy)]
struct Packet {
    opener: Ipv4Addr,
    target: Ipv4Addr,
    protocol: &'static str,
    port: u16,
    /// From the target to the opener.
    is_reply: bool,
}

/// The table `inet` as the kernel would follow it.
struct Model {
    chains: BTreeMap<String, Vec<Value>>,
    sets: BTreeMap<String, Value>,
}

/// What a chain comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Passes,
    Ends,
    /// It is over without a decision.
    Undecided,
}

/// What a statement comes to.
enum Turn {
    Next,
    NoMatch,
    Ends(End),
}

impl Model {
    fn of(table: &RulesTable) -> Self {
        let (mut chains, mut sets) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::new());
        for (chain, rule) in rules(table) {
            chains.entry(chain).or_default().push(rule);
        }
        for command in serde_json::to_value(table.rebuild()).unwrap().as_array().unwrap() {
            if let Some(element) = command["add"].get("element") {
                sets.insert(element["name"].as_str().unwrap().to_owned(), element["elem"].clone());
            }
        }
        Self { chains, sets }
    }

    /// Where the kernel begins with what is routed from guest to guest.
    fn passes(&self, packet: Packet) -> bool {
        self.follow("crossing", packet) == End::Passes
    }

    fn follow(&self, chain: &str, packet: Packet) -> End {
        for rule in &self.chains[chain] {
            for statement in rule.as_array().unwrap() {
                match self.turn(statement, packet) {
                    Turn::Next => {}
                    Turn::NoMatch => break,
                    Turn::Ends(end) => return end,
                }
            }
        }
        End::Undecided
    }

    fn turn(&self, statement: &Value, packet: Packet) -> Turn {
        let (kind, body) = statement.as_object().unwrap().iter().next().unwrap();
        let goes = |chain: &Value| Turn::Ends(self.follow(chain.as_str().unwrap(), packet));
        match kind.as_str() {
            "accept" => Turn::Ends(End::Passes),
            "drop" | "reject" => Turn::Ends(End::Ends),
            // There are few connections, none of them marked.
            "ct count" => Turn::NoMatch,
            "mangle" => Turn::Next,
            "goto" => goes(&body["target"]),
            "jump" => match goes(&body["target"]) {
                Turn::Ends(End::Undecided) => Turn::Next,
                decided => decided,
            },
            "vmap" => {
                let key = self.value(&body["key"], packet);
                let pairs = body["data"]["set"].as_array().unwrap();
                match pairs.iter().find(|pair| pair[0] == key) {
                    Some(pair) => goes(&pair[1]["goto"]["target"]),
                    None => Turn::Next,
                }
            }
            "match" => {
                let left = self.value(&body["left"], packet);
                let matches = self.is_in(&left, &body["right"]);
                match matches == (body["op"] != "!=") {
                    true => Turn::Next,
                    false => Turn::NoMatch,
                }
            }
            other => panic!("the model does not know `{other}`"),
        }
    }

    /// What an expression is, of this packet.
    fn value(&self, of: &Value, packet: Packet) -> Value {
        if let Some(key) = of["meta"]["key"].as_str() {
            assert_eq!(key, "l4proto");
            return packet.protocol.into();
        }
        let (key, of) = (of["ct"]["key"].as_str(), of["ct"]["dir"].as_str());
        match (key.unwrap(), of) {
            ("ip saddr", Some("original")) => packet.opener.to_string().into(),
            ("ip daddr", Some("original")) => packet.target.to_string().into(),
            ("proto-dst", Some("original")) => packet.port.into(),
            ("direction", None) => if packet.is_reply { "reply" } else { "original" }.into(),
            ("state", None) => "established".into(),
            ("status", None) => "assured".into(),
            ("mark", None) => 0.into(),
            other => panic!("the model does not know {other:?}"),
        }
    }

    fn is_in(&self, left: &Value, right: &Value) -> bool {
        if let Some(set) = right.as_str().and_then(|text| text.strip_prefix('@')) {
            // A set without elements, or whose elements come when names are resolved.
            let Some(elements) = self.sets.get(set) else { return false };
            return elements.as_array().unwrap().iter().any(|one| self.is_in(left, one));
        }
        if let Some(prefix) = right.get("prefix") {
            let base: Ipv4Addr = prefix["addr"].as_str().unwrap().parse().unwrap();
            let bits = u32::try_from(prefix["len"].as_u64().unwrap()).unwrap();
            let address: Ipv4Addr = left.as_str().unwrap().parse().unwrap();
            return (base.to_bits() ^ address.to_bits()).leading_zeros() >= bits;
        }
        if let Some(range) = right.get("range").and_then(Value::as_array) {
            let (port, ends) = (left.as_u64(), [range[0].as_u64(), range[1].as_u64()]);
            return ends[0] <= port && port <= ends[1];
        }
        left == right
    }
}

/// What the plan says, in its own words.
fn allowed(network: &NetworkPlan, packet: Packet) -> bool {
    let of = |address| {
        let member = network.members().find(|(_, member)| member.lease.address == address);
        &member.unwrap().1.policy
    };
    let (opener, target) = (of(packet.opener), of(packet.target));
    let mates = opener.group.is_some() && opener.group == target.group;
    let ports = &target.allowed_ports;
    let port = ports.is_empty() || (packet.protocol != "gre" && ports.contains(&packet.port));
    (mates || (opener.allow_inter_vm && target.allow_inter_vm)) && port
}

/// Each pair of guests, both ways, on an allowed port and another one.
fn packets(network: &NetworkPlan) -> Vec<Packet> {
    let all: Vec<_> = network.members().map(|(_, member)| member).collect();
    let mut packets = Vec::new();
    for opener in &all {
        for target in all.iter().filter(|target| target.lease != opener.lease) {
            let other = (1..).find(|port| !target.policy.allowed_ports.contains(port)).unwrap();
            let ports = target.policy.allowed_ports.iter().copied().chain([other]);
            for (port, protocol) in
                ports.flat_map(|port| ["tcp", "udp", "gre"].map(|protocol| (port, protocol)))
            {
                let (opener, target) = (opener.lease.address, target.lease.address);
                let packet = |is_reply| Packet { opener, target, protocol, port, is_reply };
                packets.extend([false, true].map(packet));
            }
        }
    }
    packets
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn exactly_the_pairs_of_the_plan_reach_one_another(network in networks()) {
        let model = Model::of(&Ruleset::render(&network).inet);
        for packet in packets(&network) {
            prop_assert_eq!(model.passes(packet), allowed(&network, packet), "{:?}", packet);
        }
    }

    #[test]
    fn a_group_costs_an_element_and_a_rule_for_each_member(network in networks()) {
        let mut without = network.clone();
        let ids: Vec<_> = network.members().map(|(id, _)| id).collect();
        for id in ids {
            let mut member = network.member(id).unwrap().clone();
            member.policy.group = None;
            without.admit(id, member).unwrap();
        }
        let members: usize = network.groups().values().map(Vec::len).sum();
        let [with, without] = [&network, &without].map(|n| Ruleset::render(n).inet);
        prop_assert_eq!(with.rules().count() - without.rules().count(), members);
        let elements = |table: &RulesTable| -> usize {
            let sets = Model::of(table).sets;
            sets.values().map(|elements| elements.as_array().unwrap().len()).sum()
        };
        prop_assert_eq!(elements(&with) - elements(&without), members);
    }
}

#[test]
fn who_joins_a_group_costs_the_same_whatever_its_size() {
    let commands = |mates: usize| {
        let mut network = NetworkPlan::new("hk".parse().unwrap(), Subnet::default());
        let group = |name: &str| MemberPolicy {
            group: Some(name.parse().unwrap()),
            ..MemberPolicy::default()
        };
        let admit = |network: &mut NetworkPlan, id, policy| {
            let lease = network.allot(id).unwrap();
            network
                .admit(id, NetworkMember { lease, policy, forwards: Vec::new(), parked: false })
                .unwrap();
        };
        (0..mates).for_each(|_| admit(&mut network, WorkspaceId::new(), group("a")));
        let id = WorkspaceId::new();
        admit(&mut network, id, MemberPolicy::default());
        let before = Ruleset::render(&network);
        let mut member = network.member(id).unwrap().clone();
        member.policy = group("a");
        network.admit(id, member).unwrap();
        let after = Ruleset::render(&network);
        assert!(after.bridge.difference(&before.bridge).unwrap().is_empty());
        serde_json::to_value(after.inet.difference(&before.inet).unwrap()).unwrap()
    };
    let [few, many] = [1, 40].map(commands);
    let kinds = |commands: &Value| -> Vec<String> {
        let all = commands.as_array().unwrap().iter();
        all.map(|command| {
            let (verb, what) = command.as_object().unwrap().iter().next().unwrap();
            let (kind, body) = what.as_object().unwrap().iter().next().unwrap();
            let elements = body["elem"].as_array().map_or(0, Vec::len);
            format!("{verb} {kind} {elements}")
        })
        .collect()
    };
    // Its own chain anew, and itself into the set.
    assert_eq!(kinds(&few)[..2], ["flush chain 0", "add element 1"]);
    assert!(kinds(&few)[2..].iter().all(|kind| kind == "add rule 0"), "{few}");
    assert_eq!(kinds(&few), kinds(&many));
}
