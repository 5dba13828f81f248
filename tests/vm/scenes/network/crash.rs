//! The daemon dies, and the kernel keeps nothing of who is gone.

use std::net::SocketAddrV4;

use hivekeep_network::selftest::{talk::TestServer, test_network::PUBLIC};
use serde_json::{Value, json};

use super::{PORT, destroy, emptied, forward, greeted, policy, stage};
use crate::{
    house::House,
    leaks,
    scenes::crash::{self, settled},
};

pub fn every_point_leaves_nothing(mut house: House) {
    for point in
        ["create.after_plan", "start.after_prepare", "start.after_launch", "create.before_created"]
    {
        die_at(
            &mut house,
            point,
            "workspace_create",
            json!({ "name": "half", "allow_internet": true }),
        );
        assert_eq!(settled(&house, "half"), None, "{point}");
        emptied(&mut house);
        leaks::check(&house);
    }
    for point in ["kill.after_kill", "destroy.after_discard", "destroy.after_leave"] {
        house.create("doomed");
        policy(
            &house,
            "doomed",
            json!({ "allow_internet": true, "egress_allow": ["good.example"] }),
        );
        forward(&house, "doomed", 80, None);
        die_at(&mut house, point, "workspace_destroy", json!({ "workspace_id": "doomed" }));
        assert_eq!(settled(&house, "doomed"), None, "{point}");
        emptied(&mut house);
        leaks::check(&house);
    }
    // What was written holds after a kill, whether or not it was answered.
    house.create("w");
    let _server =
        TestServer::start(&stage(&house).world, SocketAddrV4::new(PUBLIC, PORT)).expect("a server");
    for (point, allow) in [("network.after_durable", true), ("network.after_applied", false)] {
        let args = json!({ "workspace_id": "w", "allow_internet": allow });
        die_at(&mut house, point, "network_policy", args);
        house.wait_state("w", "running");
        let shown = policy(&house, "w", json!({}));
        assert_eq!(shown["network_policy"]["allow_internet"], allow, "{point}");
        assert_eq!(greeted(&house, "w", PUBLIC, PORT), allow, "{point}");
        let port = if allow { 8080 } else { 8081 };
        let args =
            json!({ "workspace_id": "w", "action": "add", "guest_port": 80, "host_port": port });
        die_at(&mut house, point, "port_forward", args.clone());
        house.wait_state("w", "running");
        assert_eq!(house.refused("port_forward", args).code, "port_taken", "{point}");
    }
    destroy(&house, "w");
    emptied(&mut house);
}

fn die_at(house: &mut House, point: &str, tool: &str, args: Value) {
    crash::die_at(house, point, |house| {
        if let Some(workspace) = args["workspace_id"].as_str() {
            house.wait_state(workspace, "running");
        }
        let answer = house.try_call(tool, args);
        assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
    });
}
