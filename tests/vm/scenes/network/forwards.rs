//! Ports of the host that lead to a guest.

use std::net::{Ipv4Addr, SocketAddrV4};

use hivekeep_network::selftest::{
    talk::{self, PATIENCE, TestServer},
    test_network::{HOST, PUBLIC, TestNetwork},
};
use serde_json::json;

use super::{
    PORT, QUIET, destroy, forward, greeted, info, ip, links, policy, rules, serve, stage,
    until_none,
};
use crate::{house::House, leaks};

pub fn forwards_outlive_everything_but_their_workspace(mut house: House) {
    house.create("w");
    let before = links(&stage(&house).host);
    let at = ip(&house, "w");
    serve(&house, "w", &[80]);
    let fixed = forward(&house, "w", 80, Some(8080));
    let free = forward(&house, "w", 80, None);
    assert!(fixed == 8080 && free > 1024 && free != fixed);
    let taken =
        json!({ "workspace_id": "w", "action": "add", "guest_port": 81, "host_port": 8080 });
    let taken = house.refused("port_forward", taken);
    assert!(taken.code == "port_taken" && taken.details["workspace"] == "w", "{}", taken.text);
    let reached = |house: &House, port: u16| {
        let TestNetwork { host, world, .. } = stage(house);
        let at = |address| SocketAddrV4::new(address, port);
        let inside = talk::tcp(host, at(Ipv4Addr::LOCALHOST), PATIENCE);
        let outside = talk::tcp(world, at(HOST), PATIENCE);
        [inside, outside].map(|greeting| greeting.is_ok_and(|text| text == "tcp served"))
    };
    assert_eq!(reached(&house, free), [true, true]);
    policy(&house, "w", json!({ "allow_internet": true }));
    policy(&house, "w", json!({ "allow_internet": false }));
    assert_eq!(reached(&house, fixed), [true, true], "after a change of the policy");
    // While the daemon is away too: they are the kernel's.
    house.kill();
    assert_eq!(reached(&house, fixed), [true, true], "without a daemon");
    house.start();
    house.wait_state("w", "running");
    assert_eq!(reached(&house, free), [true, true], "after a restart of the daemon");
    house.call("workspace_stop", json!({ "workspace_id": "w" }));
    let started = house.call("workspace_start", json!({ "workspace_id": "w" }));
    assert_eq!(started["ip"], json!(at.to_string()));
    serve(&house, "w", &[80]);
    assert_eq!(reached(&house, fixed), [true, true], "after a stop and a start");
    house.call(
        "port_forward",
        json!({ "workspace_id": "w", "action": "remove", "guest_port": 80, "host_port": free }),
    );
    let gone = |house: &House, port| {
        let host = &stage(house).host;
        talk::tcp(host, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), QUIET).is_err()
    };
    assert!(gone(&house, free) && reached(&house, fixed) == [true, true]);
    destroy(&house, "w");
    assert!(gone(&house, fixed));
    // The answer waits for the journal; the kernel follows.
    until_none(|| Some(links(&stage(&house).host)).filter(|now| *now == before));
    // Another one may have the port now.
    house.create("v");
    assert_eq!(forward(&house, "v", 80, Some(8080)), 8080);
    house.stop(true);
    let host = &stage(&house).host;
    assert_eq!(
        (rules(host).trim(), links(host).len()),
        ("", 2),
        "{}\n{:?}",
        rules(host),
        links(host)
    );
    house.start();
    let v = info(&house, "v");
    assert_eq!(
        (&v["state"], &v["network"]["port_forwards"][0]["host_port"]),
        (&json!("stopped"), &json!(8080))
    );
}

/// Without a bridge: QEMU's own network, which lets nothing through but the forwards.
pub fn alone_with_its_forwards(mut house: House) {
    let request = json!({ "name": "w", "allow_internet": true });
    assert_eq!(house.refused("workspace_create", request).code, "policy_unavailable");
    assert!(house.list().is_empty());
    house.create("w");
    assert_eq!(info(&house, "w")["network"]["mode"], "user");
    let request = json!({ "workspace_id": "w", "allow_inter_vm": true });
    assert_eq!(house.refused("network_policy", request).code, "policy_unavailable");
    let _server =
        TestServer::start(&stage(&house).world, SocketAddrV4::new(PUBLIC, PORT)).expect("a server");
    assert!(!greeted(&house, "w", PUBLIC, PORT));
    serve(&house, "w", &[80]);
    let reached = |house: &House, port| {
        let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        talk::tcp(&stage(house).host, at, PATIENCE).is_ok_and(|text| text == "tcp served")
    };
    let (one, two) = (forward(&house, "w", 80, None), forward(&house, "w", 80, None));
    assert!(reached(&house, one) && reached(&house, two), "of a machine that runs");
    let remove =
        json!({ "workspace_id": "w", "action": "remove", "guest_port": 80, "host_port": two });
    house.call("port_forward", remove);
    assert!(!reached(&house, two));
    house.kill();
    house.start();
    house.wait_state("w", "running");
    assert!(reached(&house, one), "after a restart of the daemon");
    house.call("workspace_stop", json!({ "workspace_id": "w" }));
    house.call("workspace_start", json!({ "workspace_id": "w" }));
    serve(&house, "w", &[80]);
    assert!(reached(&house, one) && !reached(&house, two), "after a stop and a start");
    leaks::check(&house);
}
