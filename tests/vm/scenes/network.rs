//! What packets show: real guests, a daemon in a namespace of its own, a world around it.

mod crash;
mod forwards;
mod https;
mod made;
mod parked;
mod team;

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddrV4},
    process::Command,
    time::{Duration, Instant},
};

use hivekeep_network::{
    Namespace,
    selftest::{
        talk::{PATIENCE, TestServer},
        test_network::{HOST, METADATA, PRIVATE, PUBLIC, TestNetwork, WORLD},
    },
};
use serde_json::{Value, json};

pub use crash::every_point_leaves_nothing;
pub use forwards::{alone_with_its_forwards, forwards_outlive_everything_but_their_workspace};
pub use https::{config as https_config, git_works_over_https};
pub use made::{a_claimed_machine_is_connected, a_repository_is_cloned_from_afar};
pub use parked::{a_connection_wakes_a_parked_machine, alone_it_is_woken_too};
pub use team::a_team_is_a_group_of_its_own;

use crate::{house::House, leaks, names::Names};

/// The world's name server is asked, and forwards are there for the world too.
pub const CONFIG: &str =
    "[network]\ndns_upstreams = [\"198.51.100.1:53\"]\nforward_host_ip = \"0.0.0.0\"\n";
/// Of servers.
const PORT: u16 = 4000;
const FORKS: usize = 4;
/// What is listened to for what must not arrive.
const QUIET: Duration = Duration::from_millis(500);

fn stage(house: &House) -> &TestNetwork {
    house.stage.as_ref().expect("opened with a network")
}

fn info(house: &House, workspace: &str) -> Value {
    house.call("workspace_info", json!({ "workspace_id": workspace }))
}

fn ip(house: &House, workspace: &str) -> Ipv4Addr {
    info(house, workspace)["ip"].as_str().expect("an address").parse().expect("an address")
}

fn policy(house: &House, workspace: &str, change: Value) -> Value {
    let mut args = json!({ "workspace_id": workspace });
    args.as_object_mut().expect("an object").extend(change.as_object().expect("one").clone());
    let set = house.call("network_policy", args);
    assert_eq!((&set["applied"], &set["verified"]), (&json!(true), &json!(true)), "{set}");
    set
}

fn forward(house: &House, workspace: &str, guest_port: u16, host_port: Option<u16>) -> u16 {
    let args = json!({
        "workspace_id": workspace, "action": "add", "guest_port": guest_port, "host_port": host_port,
    });
    let added = house.call("port_forward", args);
    u16::try_from(added["host_port"].as_u64().expect("a port")).expect("a port")
}

/// Whatever comes of it; what it printed on both streams.
fn say(house: &House, workspace: &str, script: &str) -> String {
    house.exec(workspace, &format!("{{ {script}; }} 2>&1; true"))
}

/// Whether a guest is greeted at this address and port.
fn greeted(house: &House, from: &str, to: Ipv4Addr, port: u16) -> bool {
    say(house, from, &format!("nc -w 2 {to} {port} </dev/null")).contains("tcp ")
}

/// Greets whoever comes to these ports of the guest, as servers of the world do.
fn serve(house: &House, workspace: &str, ports: &[u16]) {
    for port in ports {
        let command = format!("exec nc -ll -p {port} -e echo 'tcp served'");
        let args = json!({ "workspace_id": workspace, "action": "start", "command": command });
        house.call("exec_background", args);
        house.exec(
            workspace,
            &format!("until netstat -ltn | grep -q ':{port} '; do sleep 0.1; done"),
        );
    }
}

/// Frames that reached the guest's interface.
fn frames(house: &House, workspace: &str) -> u64 {
    let read = house.exec(workspace, "cat /sys/class/net/eth0/statistics/rx_packets");
    read.trim().parse().expect("a number")
}

/// One guest tries another one in every protocol it knows.
fn knock(house: &House, from: &str, to: Ipv4Addr) -> String {
    let tries = [
        format!("arping -c 2 -w 2 -I eth0 {to}"),
        format!("ping -c 2 -W 1 {to}"),
        format!("traceroute -n -q 2 -f 5 -m 5 -w 1 {to}"),
        format!("nc -w 1 {to} {PORT} </dev/null"),
        "ping -c 1 -W 1 255.255.255.255".to_owned(),
        "ping6 -c 2 -W 1 -I eth0 ff02::1".to_owned(),
    ];
    say(house, from, &tries.join("; "))
}

/// Nothing of the words in the rules, and no interface but those of the living.
fn rules(host: &Namespace) -> String {
    let listed = host.run(|| Command::new("nft").args(["-s", "list", "ruleset"]).output());
    let listed = listed.expect("nft runs");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8(listed.stdout).expect("text")
}

fn links(host: &Namespace) -> BTreeSet<String> {
    let listed = host.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).expect("read");
    let names = listed.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    names.collect()
}

fn destroy(house: &House, workspace: &str) {
    house.call("workspace_destroy", json!({ "workspace_id": workspace }));
}

pub fn walls_doors_and_windows(mut house: House) {
    let made = house.create("a");
    house.create("b");
    let (a, b) = (ip(&house, "a"), ip(&house, "b"));
    assert_eq!(made["ip"], json!(a.to_string()));
    assert_eq!(info(&house, "a")["network"]["mode"], "bridge");
    serve(&house, "b", &[PORT, PORT + 1]);
    for guest in ["a", "b"] {
        let six =
            "sysctl -w net.ipv6.conf.eth0.disable_ipv6=0; ip -6 addr add fe80::77/64 dev eth0";
        say(&house, guest, six);
    }
    apart(&house, b);
    together(&house, a, b);
    outside(&house);
    by_name(&house);
    forks(&house);
    for guest in ["a", "b"] {
        destroy(&house, guest);
    }
    emptied(&mut house);
    leaks::check(&house);
}

/// What the kernel holds of a network: rules and interfaces.
fn held(house: &House) -> (String, BTreeSet<String>) {
    let host = &stage(house).host;
    (rules(host), links(host))
}

/// Of the destroyed nothing is left, right after the answer: no tap, no address, no forward. What
/// stands without guests goes with a daemon that finds none.
fn emptied(house: &mut House) {
    let guests = |house: &House| {
        let (rules, links) = held(house);
        let own = rules.replace("10.213.0.0/16", "").replace("10.213.0.1 ", "");
        let taps = links.iter().filter(|name| name.contains("-t")).count();
        (own.contains("10.213.") || taps > 0).then_some((rules, links))
    };
    until_none(|| guests(house));
    house.kill();
    house.start();
    until_none(|| {
        Some(held(house)).filter(|(rules, links)| (rules.as_str(), links.len()) != ("", 2))
    });
}

fn until_none<T: std::fmt::Debug>(left: impl Fn() -> Option<T>) {
    let begun = Instant::now();
    while let Some(left) = left() {
        assert!(begun.elapsed() < PATIENCE, "left: {left:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn apart(house: &House, b: Ipv4Addr) {
    let mac = info(house, "b")["network"]["mac"].as_str().expect("a mac").to_owned();
    let heard = frames(house, "b");
    let tried = knock(house, "a", b);
    assert_eq!(frames(house, "b"), heard, "something of a reached b:\n{tried}");
    // The bridge answers for b, and b itself was not asked.
    assert!(!say(house, "a", "ip neigh").contains(&mac), "a knows where b is");
    // One side alone opens nothing.
    policy(house, "a", json!({ "allow_inter_vm": true }));
    let tried = knock(house, "a", b);
    assert_eq!(frames(house, "b"), heard, "something of a reached b:\n{tried}");
}

fn together(house: &House, a: Ipv4Addr, b: Ipv4Addr) {
    policy(house, "b", json!({ "allow_inter_vm": true }));
    assert!(greeted(house, "a", b, PORT) && greeted(house, "a", b, PORT + 1));
    let ping = |from: &str| say(house, "a", &format!("ping -c 3 -W 1 {from} {b}"));
    assert!(ping("").contains("3 packets received"), "{}", ping(""));
    let datagram = say(house, "a", &format!("traceroute -n -q 1 -f 5 -m 5 -w 5 {b} | tail -n 1"));
    assert!(datagram.contains(&b.to_string()), "b refuses no datagram: {datagram}");
    // With another address than its own it reaches nobody, b least of all.
    let stranger = Ipv4Addr::from_bits(a.to_bits() ^ 0x0101);
    say(house, "a", &format!("ip addr add {stranger}/32 dev eth0"));
    let heard = frames(house, "b");
    let spoofed = ping(&format!("-I {stranger}"));
    assert!(spoofed.contains(" 0 packets received"), "{spoofed}");
    assert_eq!(frames(house, "b"), heard, "a spoofed packet reached b");
    assert!(ping("").contains("3 packets received"), "the host took the lie for true");
    say(house, "a", &format!("ip addr del {stranger}/32 dev eth0"));
    policy(house, "b", json!({ "allowed_ports": [PORT + 1] }));
    assert!(greeted(house, "a", b, PORT + 1) && !greeted(house, "a", b, PORT));
    policy(house, "b", json!({ "allow_inter_vm": false, "allowed_ports": [] }));
    let heard = frames(house, "b");
    assert!(!greeted(house, "a", b, PORT + 1));
    assert_eq!(frames(house, "b"), heard);
}

fn outside(house: &House) {
    let stage = stage(house);
    let serve = |namespace, address| {
        TestServer::start(namespace, SocketAddrV4::new(address, PORT)).expect("a server")
    };
    let public = serve(&stage.world, PUBLIC);
    let closed =
        [serve(&stage.world, PRIVATE), serve(&stage.world, METADATA), serve(&stage.host, HOST)];
    assert!(!greeted(house, "a", PUBLIC, PORT));
    assert_eq!(public.received("tcp"), 0);
    policy(house, "a", json!({ "allow_internet": true }));
    assert!(greeted(house, "a", PUBLIC, PORT), "the internet is closed");
    assert_eq!(public.received(&format!("tcp {HOST}")), public.received("tcp"));
    for (server, address) in closed.iter().zip([PRIVATE, METADATA, HOST]) {
        assert!(!greeted(house, "a", address, PORT), "{address} is open");
        assert_eq!(server.received("tcp"), 0, "{address} heard of it");
    }
    policy(
        house,
        "a",
        json!({ "allow_internet": false, "egress_allow": [format!("{PRIVATE}:{PORT}")] }),
    );
    assert!(greeted(house, "a", PRIVATE, PORT) && !greeted(house, "a", PUBLIC, PORT));
    let refused = json!({ "workspace_id": "a", "egress_allow": ["not an address!"] });
    assert!(house.refused("network_policy", refused).text.contains("not an address"));
    // What was refused changed nothing.
    let shown = policy(house, "a", json!({}));
    assert_eq!(shown["network_policy"]["egress_allow"], json!([format!("{PRIVATE}:{PORT}")]));
}

fn by_name(house: &House) {
    let stage = stage(house);
    let _names = Names::serve(&stage.world, SocketAddrV4::new(WORLD, 53), PUBLIC);
    let server =
        TestServer::start(&stage.world, SocketAddrV4::new(PUBLIC, PORT + 1)).expect("a server");
    policy(house, "a", json!({ "egress_allow": ["good.example"] }));
    assert!(!greeted(house, "a", PUBLIC, PORT + 1), "open before its name was asked for");
    assert_eq!(server.received("tcp"), 0);
    let found = say(house, "a", "nslookup good.example");
    assert!(found.contains(&PUBLIC.to_string()), "{found}");
    assert!(greeted(house, "a", PUBLIC, PORT + 1), "closed although its name was asked for");
    let refused = say(house, "a", "nslookup other.example");
    assert!(!refused.contains(&PUBLIC.to_string()), "{refused}");
    policy(house, "a", json!({ "egress_allow": [] }));
    assert!(!greeted(house, "a", PUBLIC, PORT + 1), "open although its name is not allowed");
}

/// Of one memory, each with an address of its own, and apart from each other. Twenty of one memory are
/// `snapshots::forks_of_one_memory_are_themselves`.
fn forks(house: &House) {
    let save =
        json!({ "workspace_id": "a", "action": "create", "name": "s", "include_memory": true });
    house.call("snapshot", save);
    // The source lets others in.
    let fork = json!({
        "workspace_id": "a", "snapshot_name": "s", "count": FORKS, "allow_inter_vm": false,
    });
    let forked = house.call("workspace_fork", fork);
    assert_eq!(forked["success_count"], FORKS, "{}", forked["failures"]);
    let workers = forked["workers"].as_array().expect("workers");
    let names: Vec<_> = workers.iter().map(|worker| worker["name"].clone()).collect();
    let look = "cat /sys/class/net/eth0/address; ip -4 -o addr show dev eth0; \
                arping -c 1 -w 5 -I eth0 10.213.0.1";
    let looked = json!({ "workspace_ids": names, "commands": look });
    let looked = house.call("exec_parallel", looked);
    let mut said = BTreeSet::from([ip(house, "a").to_string()]);
    for (worker, shown) in workers.iter().zip(looked["results"].as_array().expect("results")) {
        let shown = shown["stdout"].as_str().expect("text");
        let name = worker["name"].as_str().expect("a name");
        let mac = info(house, name)["network"]["mac"].as_str().expect("a mac").to_owned();
        let ip = worker["ip"].as_str().expect("an address").to_owned();
        assert!(shown.starts_with(&mac) && shown.contains(&format!(" {ip}/")), "{name}: {shown}");
        assert!(shown.contains("Received 1 response"), "{name}: no gateway: {shown}");
        assert!(said.insert(mac.clone()) && said.insert(ip), "{name}: {mac} twice");
    }
    let heard = frames(house, "worker-2");
    knock(house, "worker-1", ip(house, "worker-2"));
    assert_eq!(frames(house, "worker-2"), heard, "one fork reached another one");
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(|| destroy(house, name.as_str().expect("a name")));
        }
    });
}
