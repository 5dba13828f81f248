//! The guest's real AF_VSOCK listener, reached through a device process on the host.

use serde_json::json;

use super::files;
use crate::{house::House, needs::named};

/// Names the program that is the device.
pub const DEVICE: &str = "TEST_HIVEKEEP_VHOST_DEVICE_VSOCK";

pub fn config() -> String {
    let program = named(DEVICE);
    format!(
        "[workspace.driver]\ncarrier = \"vhost-user-vsock\"\nvhost_device_vsock_path = {program:?}"
    )
}

pub fn carries_the_link(house: &mut House) {
    let info = house.call("workspace_info", json!({ "workspace_id": "w" }));
    assert_eq!(info["machine"]["carrier"], "vhost-user-vsock", "{info}");
    assert_eq!(house.exec("w", "head -c 300000 /dev/zero | wc -c").trim(), "300000");
    files::transfers_both_ways(house);
}
