//! The host's AF_VSOCK side, in a machine: its kernel's loopback stands for the host's vhost.

use std::fs;

use serde_json::json;

use crate::{house::House, needs::named};

/// Names a program that dials a listener in its own kernel.
pub const PROBE: &str = "TEST_HIVEKEEP_VSOCK_PROBE";
/// What a second agent in the machine is told and the probe knows.
const TOKEN: [u8; 32] = [0x5a; 32];
/// Where agents listen.
const PORT: u32 = 5000;
/// This machine, for itself.
const LOCAL_CID: u32 = 1;

pub fn the_hosts_vsock_carrier_inside_a_guest(house: &mut House) {
    fs::copy(named(PROBE), house.path().join("state/transfers/probe")).expect("copied");
    let upload = json!({ "workspace_id": "w", "direction": "upload", "host_path": "probe", "guest_path": "/data/probe" });
    house.call("file_transfer", upload);
    let hash = blake3::hash(&TOKEN).to_hex();
    // The machine's own agent is the program behind its init.
    let agent = format!(
        "mkdir -p /data/agent && exec /proc/1/exe agent --carrier vsock --allow-cid {LOCAL_CID} --place sandbox \
         --token-hash {hash} --state-dir /data/agent/state --run-dir /data/agent/run"
    );
    let token = blake3::Hash::from_bytes(TOKEN).to_hex();
    let job = house.call(
        "exec_background",
        json!({ "workspace_id": "w", "action": "start", "command": agent }),
    );
    let tried = json!({ "workspace_id": "w", "command": format!("chmod 755 /data/probe && /data/probe {LOCAL_CID} {PORT} {token}") });
    let result = house.call("exec", tried);
    let poll = json!({ "workspace_id": "w", "action": "poll", "job_id": job["job_id"] });
    let log = || house.call("exec_background", poll.clone());
    assert_eq!(result["stdout"], "ok\n", "{result}\n{}", log());
    assert_eq!(result["exit_code"], 0, "{result}");
    // The other token is refused, so it was this agent that answered, and on purpose.
    let other = blake3::Hash::from_bytes([0x5b; 32]).to_hex();
    let refused = json!({ "workspace_id": "w", "command": format!("/data/probe {LOCAL_CID} {PORT} {other}") });
    assert_eq!(house.call("exec", refused)["exit_code"], 1);
}
