//! Rules say what the plan says, about the right member only, and decide to the end.

mod reach;

use std::collections::BTreeSet;

use hivekeep_kernel::WorkspaceId;
use proptest::prelude::*;
use serde_json::Value;

use super::table::ExistingTable;
use super::*;
use crate::plan::{Forward, MemberPolicy, NetworkMember, Protocol, Subnet};

/// The chains that replace destinations.
const TRANSLATING: [&str; 2] = ["from_outside", "from_host"];
/// The other chains that the kernel leads to; what they do not decide is not ours.
const BASE: [&str; 8] =
    ["raw", "input", "forward", "output", "prerouting", "source", "arriving", "leaving"];

/// A plan of some members with random policies.
fn networks() -> impl Strategy<Value = NetworkPlan> {
    let ports = prop::collection::btree_set(1u16.., 0..3);
    let group = prop::option::of(prop::sample::select(vec!["a", "A", "a-b", "b"]));
    let policy = (any::<bool>(), any::<bool>(), ports, group);
    let places = ["a.example", "*.b.example:443", "10.9.8.7:22/tcp", "192.168.0.0/24", "c.example"];
    let egress = prop::sample::subsequence(places.to_vec(), 0..=places.len());
    let member = (policy, egress, any::<[bool; 3]>());
    prop::collection::vec(member, 0..6).prop_map(|members| {
        let mut network = NetworkPlan::new("hk".parse().unwrap(), Subnet::default());
        for (port, ((internet, inter_vm, ports, group), egress, forwards)) in
            (20_000..).zip(members)
        {
            let id = WorkspaceId::new();
            let lease = network.allot(id).unwrap();
            let policy = MemberPolicy {
                allow_internet: internet,
                allow_inter_vm: inter_vm,
                allowed_ports: ports,
                egress_allow: egress.iter().map(|text| text.parse().unwrap()).collect(),
                group: group.map(|name| name.parse().unwrap()),
            };
            let hosts = [[127, 0, 0, 1], [0, 0, 0, 0], [198, 51, 100, 2]];
            let forward = |host_ip: [u8; 4], protocol| Forward {
                host_ip: host_ip.into(),
                host_port: port,
                guest_port: 80,
                protocol,
            };
            let protocols = [Protocol::Tcp, Protocol::Udp];
            let forwards = hosts.into_iter().zip(forwards).filter(|(_, wanted)| *wanted);
            let forwards = forwards.zip(protocols).map(|((ip, _), p)| forward(ip, p)).collect();
            network.admit(id, NetworkMember { lease, policy, forwards, parked: false }).unwrap();
        }
        network
    })
}

/// The rules of a table as the kernel is told them.
fn rules(table: &RulesTable) -> Vec<(String, Value)> {
    let rules = table.rules();
    rules.map(|(chain, rule)| (chain.to_owned(), serde_json::to_value(rule).unwrap())).collect()
}

#[test]
fn no_tcp_connection_is_led_to_a_machine_that_is_parked() {
    let network = NetworkPlan::new("hk".parse().unwrap(), Subnet::default());
    let id = WorkspaceId::new();
    let lease = network.allot(id).unwrap();
    let forward = |protocol| Forward {
        host_ip: [0, 0, 0, 0].into(),
        host_port: 20_000,
        guest_port: 80,
        protocol,
    };
    let led = |parked| {
        let forwards = Protocol::ALL.map(forward).to_vec();
        let member = NetworkMember { lease, policy: MemberPolicy::default(), forwards, parked };
        let mut network = network.clone();
        network.admit(id, member).unwrap();
        let all = rules(&Ruleset::render(&network).inet);
        let (led, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(chain, _)| TRANSLATING.contains(&chain.as_str()));
        let of = |protocol: &str| {
            led.iter()
                .filter(|(_, rule)| rule.to_string().contains(&format!("\"{protocol}\"")))
                .count()
        };
        ([of("tcp"), of("udp")], rest)
    };
    let (awake, parked) = (led(false), led(true));
    assert_eq!((awake.0, parked.0), ([2, 2], [0, 2]));
    // Connections that were made before go on when it does.
    assert_eq!(awake.1, parked.1);
}

/// True when an address stands in a rule other than as a key that leads to its owner's chain.
fn mentions(rule: &Value, address: &str, owner: &str) -> bool {
    match rule {
        Value::String(text) => text == address,
        Value::Array(parts) => match parts.as_slice() {
            [Value::String(key), verdict] if key == address => {
                let target = verdict["goto"]["target"].as_str();
                !target.is_some_and(|chain| chain.ends_with(owner))
            }
            parts => parts.iter().any(|part| mentions(part, address, owner)),
        },
        Value::Object(fields) => fields.values().any(|field| mentions(field, address, owner)),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_rule_of_one_member_is_about_another(network in networks()) {
        let rendered = Ruleset::render(&network);
        for (chain, rule) in rules(&rendered.inet) {
            for (id, member) in network.members() {
                let (address, id) = (member.lease.address.to_string(), id.to_string());
                let its_own = chain.ends_with(&id) || TRANSLATING.contains(&chain.as_str());
                let right = its_own || !mentions(&rule, &address, &id);
                prop_assert!(right, "{} in {}: {}", address, chain, rule);
            }
            // A translation leads to one guest.
            let text = rule.to_string();
            let mut addresses = network.members().map(|(_, m)| format!("\"{}\"", m.lease.address));
            if TRANSLATING.contains(&chain.as_str()) {
                prop_assert_eq!(addresses.by_ref().filter(|address| text.contains(address)).count(), 1);
            }
        }
    }

    #[test]
    fn every_chain_decides_in_its_last_rule(network in networks()) {
        let rendered = Ruleset::render(&network);
        for table in [&rendered.inet, &rendered.bridge] {
            let all = rules(table);
            let led_to: BTreeSet<&str> = all.iter().map(|(chain, _)| chain.as_str()).collect();
            let base = |chain: &&str| BASE.contains(chain) || TRANSLATING.contains(chain);
            for chain in led_to.into_iter().filter(|chain| !base(chain)) {
                let (_, last) = all.iter().rfind(|(name, _)| name == chain).unwrap();
                let ends = ["accept", "drop", "reject"].iter().any(|end| last[0].get(*end).is_some());
                let verdict = ends && last.as_array().unwrap().len() == 1;
                // Ports that are not allowed fall back to `between`, which refuses.
                prop_assert!(verdict || chain.starts_with("ports_"), "{}: {}", chain, last);
            }
        }
    }

    #[test]
    fn a_plan_is_rendered_the_same_each_time(network in networks()) {
        let [one, other] = [(); 2].map(|()| Ruleset::render(&network));
        prop_assert_eq!(rules(&one.inet), rules(&other.inet));
        prop_assert_eq!(rules(&one.bridge), rules(&other.bridge));
        let existing = ExistingTable::default();
        let text = |set: &Ruleset| serde_json::to_string(&set.inet.update(&existing)).unwrap();
        prop_assert_eq!(text(&one), text(&other));
    }

    #[test]
    fn an_update_removes_what_is_not_planned_and_leaves_what_names_opened(network in networks()) {
        let rendered = Ruleset::render(&network);
        let kept: BTreeSet<String> = rendered.inet.kept_sets().map(str::to_owned).collect();
        let mut existing = ExistingTable::default();
        existing.chains.extend(["out_gone".to_owned(), "crossing".to_owned()]);
        existing.sets.extend(["names_gone".to_owned(), "members".to_owned()]);
        existing.sets.extend(kept.iter().cloned());
        let commands = serde_json::to_value(rendered.inet.update(&existing)).unwrap();
        let commands = commands.as_array().unwrap();
        let named = |verb: &str, kind: &str| -> BTreeSet<String> {
            let found = commands.iter().filter_map(|c| c.get(verb)?.get(kind)?["name"].as_str());
            found.map(str::to_owned).collect()
        };
        prop_assert_eq!(named("delete", "chain"), BTreeSet::from(["out_gone".to_owned()]));
        prop_assert_eq!(named("delete", "set"), BTreeSet::from(["names_gone".to_owned()]));
        prop_assert_eq!(named("flush", "set"), BTreeSet::from(["members".to_owned()]));
        prop_assert!(named("add", "element").is_disjoint(&kept));
    }
}

#[test]
fn a_names_set_is_the_same_whatever_else_changes_and_no_other_members() {
    let [one, other] = [WorkspaceId::new(), WorkspaceId::new()];
    let [a, b] = ["a.example", "b.example"].map(|text| text.parse().unwrap());
    assert_eq!(name_set(one, &a), name_set(one, &a));
    let all = [name_set(one, &a), name_set(one, &b), name_set(other, &a), name_set(other, &b)];
    assert_eq!(BTreeSet::from(all).len(), 4);
}

#[test]
fn port_53_is_open_only_while_names_are_served() {
    let mut network = NetworkPlan::new("hk".parse().unwrap(), Subnet::default());
    let opens = |network: &NetworkPlan| {
        rules(&Ruleset::render(network).inet)
            .iter()
            .any(|(_, rule)| rule.to_string().contains("\"right\":53,"))
    };
    assert!(!opens(&network));
    network.serve_names(true);
    assert!(opens(&network));
    // And then to nobody but the resolver.
    let all = rules(&Ruleset::render(&network).inet);
    let (_, first) = all.iter().find(|(chain, _)| chain == "names").unwrap();
    assert_eq!(first[0]["match"]["left"]["socket"]["key"], "mark", "{first}");
    let asking = all.iter().map(|(_, rule)| rule.to_string());
    let asking: Vec<_> = asking.filter(|rule| rule.contains("\"right\":53,")).collect();
    assert!(asking.iter().all(|rule| rule.contains("\"target\":\"names\"")), "{asking:?}");
}
