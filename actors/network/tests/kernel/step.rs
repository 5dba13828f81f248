//! The difference alone leads where a look at everything leads.

use std::collections::BTreeSet;
use std::time::Instant;

use hivekeep_kernel::WorkspaceId;
use hivekeep_network::plan::{Forward, MemberPolicy, NetworkMember, NetworkPlan, Protocol, Subnet};
use hivekeep_network::selftest::test_network::{HOST, TestNetwork};
use hivekeep_network::{AppliedPlan, HostAccess};

use super::ensure::{internet, plan, said};
use super::killed::{interfaces, rules};
use super::needs_root;

/// Everything of the kernel's that a plan decides.
fn state(stage: &TestNetwork) -> Vec<BTreeSet<String>> {
    let lines = |line, with: &str| {
        let said = said(stage, line);
        let mut kept: Vec<_> = said.lines().filter(|line| line.contains(with)).collect();
        kept.sort_unstable();
        kept.into_iter().map(str::to_owned).enumerate().map(|(n, l)| format!("{n} {l}")).collect()
    };
    vec![
        rules(stage),
        interfaces(stage),
        lines("ip -4 -o neigh show nud permanent dev test-br", "lladdr"),
        lines("bridge fdb show br test-br", "static"),
        lines("bridge -d link show", "isolated on"),
    ]
}

fn apply(stage: &TestNetwork, plans: &[NetworkPlan]) -> Vec<AppliedPlan> {
    let plans = plans.to_vec();
    let work = move |mut enforcer: hivekeep_network::Enforcer| async move {
        let mut all = Vec::new();
        for network in &plans {
            all.push(enforcer.apply(network).await?);
        }
        Ok(all)
    };
    stage.enforcer(work).unwrap()
}

/// Plans that follow one another, with every kind of change.
fn plans() -> Vec<NetworkPlan> {
    let (mut network, ids) = plan([internet(), MemberPolicy::default(), MemberPolicy::default()]);
    let mut all = vec![network.clone()];
    let mut change = |edit: &dyn Fn(&mut NetworkPlan)| {
        edit(&mut network);
        all.push(network.clone());
    };
    let policy = |id: WorkspaceId, policy: MemberPolicy| {
        move |network: &mut NetworkPlan| {
            let mut member = network.member(id).unwrap().clone();
            member.policy = policy.clone();
            network.admit(id, member).unwrap();
        }
    };
    let together = MemberPolicy { allow_inter_vm: true, ..MemberPolicy::default() };
    change(&policy(ids[1], together.clone()));
    change(&policy(ids[2], MemberPolicy { allowed_ports: [80, 443].into(), ..together.clone() }));
    let egress = |texts: &[&str]| MemberPolicy {
        egress_allow: texts.iter().map(|text| text.parse().unwrap()).collect(),
        ..together.clone()
    };
    change(&policy(ids[0], egress(&["a.example:443/tcp", "10.0.0.0/8:53"])));
    change(&policy(ids[0], egress(&["b.example"])));
    // A group begins, grows, loses one to a group whose name begins like its own, and ends.
    let group =
        |name: &str| MemberPolicy { group: Some(name.parse().unwrap()), ..together.clone() };
    change(&policy(ids[1], group("a")));
    change(&policy(ids[2], group("a")));
    change(&policy(ids[2], group("a-b")));
    change(&policy(ids[1], together.clone()));
    change(&|network| network.serve_names(true));
    for forwards in [2, 0, 1] {
        change(&|network| {
            let mut member = network.member(ids[1]).unwrap().clone();
            let forward = |port| Forward {
                host_ip: if port == 9001 { HOST } else { [127, 0, 0, 1].into() },
                host_port: port,
                guest_port: 80,
                protocol: Protocol::Tcp,
            };
            member.forwards = (9000..9000 + forwards).map(forward).collect();
            network.admit(ids[1], member).unwrap();
        });
    }
    // One leaves, its place is another's; then all go and some come at once.
    let lease = network_seat(&all, ids[0]);
    let heir = WorkspaceId::new();
    let mut network = all.last().unwrap().clone();
    let mut change = |edit: &dyn Fn(&mut NetworkPlan)| {
        edit(&mut network);
        all.push(network.clone());
    };
    change(&|network| {
        network.dismiss(ids[0]);
        let heir_of =
            NetworkMember { lease, policy: internet(), forwards: Vec::new(), parked: false };
        network.admit(heir, heir_of).unwrap();
    });
    change(&|network| {
        ids.iter().chain([&heir]).for_each(|id| _ = network.dismiss(*id));
    });
    change(&|network| {
        for _ in 0..20 {
            let id = WorkspaceId::new();
            let lease = network.allot(id).unwrap();
            network
                .admit(
                    id,
                    NetworkMember {
                        lease,
                        policy: internet(),
                        forwards: Vec::new(),
                        parked: false,
                    },
                )
                .unwrap();
        }
    });
    all
}

fn network_seat(all: &[NetworkPlan], id: WorkspaceId) -> hivekeep_network::plan::AddressLease {
    all[0].member(id).unwrap().lease
}

#[test]
fn each_difference_ends_where_a_look_at_everything_does() {
    needs_root!();
    let plans = plans();
    for until in 1..=plans.len() {
        let (steps, whole) = (
            TestNetwork::new(HostAccess::default()).unwrap(),
            TestNetwork::new(HostAccess::default()).unwrap(),
        );
        let applied = apply(&steps, &plans[..until]);
        assert!(applied.iter().all(|applied| !applied.rebuilt && applied.repaired.is_empty()));
        whole.ensure(&plans[until - 1]).unwrap();
        for (steps, whole) in state(&steps).iter().zip(&state(&whole)) {
            let differ: Vec<_> = steps.symmetric_difference(whole).collect();
            assert!(differ.is_empty(), "plan {until}: {differ:#?}");
        }
    }
}

#[test]
fn one_member_costs_one_transaction_however_many_there_are() {
    needs_root!();
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    let mut network = NetworkPlan::new("test".parse().unwrap(), Subnet::default());
    let work = move |mut enforcer: hivekeep_network::Enforcer| async move {
        for _ in 0..30 {
            let id = WorkspaceId::new();
            let lease = network.allot(id)?;
            let policy =
                MemberPolicy { group: Some("a".parse().unwrap()), ..MemberPolicy::default() };
            network
                .admit(id, NetworkMember { lease, policy, forwards: Vec::new(), parked: false })?;
        }
        enforcer.ensure(&network).await?;
        for round in 0..6 {
            let id = WorkspaceId::new();
            let lease = network.allot(id)?;
            let policy = MemberPolicy::default();
            let ms = |began: Instant| began.elapsed().as_micros() as f64 / 1000.0;
            network
                .admit(id, NetworkMember { lease, policy, forwards: Vec::new(), parked: false })?;
            let began = Instant::now();
            let applied = enforcer.apply(&network).await?;
            let join = ms(began);
            assert_eq!((applied.made.len(), applied.removed.len()), (1, 0));
            let mut member = network.member(id).unwrap().clone();
            member.policy.allow_inter_vm = true;
            network.admit(id, member.clone())?;
            let began = Instant::now();
            enforcer.apply(&network).await?;
            let policy = ms(began);
            member.policy.group = Some("a".parse().unwrap());
            network.admit(id, member)?;
            let began = Instant::now();
            let applied = enforcer.apply(&network).await?;
            let group = ms(began);
            assert!(applied.made.is_empty() && applied.removed.is_empty() && !applied.rebuilt);
            network.dismiss(id);
            let began = Instant::now();
            let applied = enforcer.apply(&network).await?;
            let leave = ms(began);
            assert_eq!(applied.removed.len(), 1);
            let began = Instant::now();
            enforcer.check(&network).await?;
            let check = ms(began);
            let began = Instant::now();
            enforcer.ensure(&network).await?;
            println!(
                "{round}: join {join} policy {policy} group {group} leave {leave} check {check} ensure {} ms",
                ms(began)
            );
        }
        Ok(())
    };
    stage.enforcer(work).unwrap();
}

#[test]
fn what_others_change_is_mended_and_named_and_other_tables_are_theirs() {
    needs_root!();
    let (network, ids) = plan([internet(), MemberPolicy::default()]);
    let table = network.tag().table();
    let tap = network.tap(network.member(ids[1]).unwrap().lease);
    let others = [
        ("nft add table inet other".to_owned(), None),
        (format!("nft flush chain inet {table} crossing"), Some("inet chain crossing")),
        (
            format!("nft add element inet {table} members {{ 10.213.7.7 }}"),
            Some("inet set members"),
        ),
        (format!("nft delete table bridge {table}"), Some("bridge chain from_port")),
        (format!("ip link del {tap}"), Some("interface")),
        ("ip link del test-br".to_owned(), Some("interface test-br")),
    ];
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    let (planned, changes) = (network.clone(), others.clone());
    let found = stage
        .enforcer(move |mut enforcer| async move {
            enforcer.ensure(&planned).await?;
            let mut found = Vec::new();
            for (line, _) in changes {
                let mut words = line.split(' ');
                let program = words.next().unwrap();
                assert!(
                    std::process::Command::new(program).args(words).status().unwrap().success()
                );
                found.push(enforcer.check(&planned).await?.repaired);
                assert!(enforcer.check(&planned).await?.repaired.is_empty());
            }
            // And where a change of the plan comes first.
            let line = ["flush", "chain", "inet", &planned.tag().table(), "to_host"];
            assert!(std::process::Command::new("nft").args(line).status().unwrap().success());
            let mut next = planned.clone();
            next.serve_names(true);
            found.push(enforcer.apply(&next).await?.repaired);
            Ok(found)
        })
        .unwrap();
    for ((line, expected), repaired) in others.iter().zip(&found) {
        match expected {
            None => assert!(repaired.is_empty(), "{line}: {repaired:?}"),
            Some(what) => {
                assert!(repaired.iter().any(|name| name.starts_with(what)), "{line}: {repaired:?}");
            }
        }
    }
    assert_eq!(found.last().unwrap(), &["inet chain to_host"]);
    let whole = TestNetwork::new(HostAccess::default()).unwrap();
    said(&whole, "nft add table inet other");
    let mut next = network;
    next.serve_names(true);
    whole.ensure(&next).unwrap();
    assert_eq!(state(&stage), state(&whole));
}
