//! Says in `hivekeep ps` and on the event bus when the host's disk is below its floor.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{ActorStatus, Shortage};
use serde_json::json;

use crate::shared::Shared;

const LOOK_EVERY: Duration = Duration::from_secs(5);

pub(super) async fn tell(shared: Arc<Shared>, probe: Arc<ActorStatus>) {
    let mut low = false;
    loop {
        let shortage = shared.daemon.room.shortage(&shared.folders.disks);
        let was_low = std::mem::replace(&mut low, shortage.is_some());
        match shortage {
            Some(Shortage { free_bytes, floor_bytes }) => {
                let (free, floor) = (free_bytes >> 20, floor_bytes >> 20);
                probe.set_state(format!("running, disk has {free} MiB left, below {floor} MiB"));
                if !was_low {
                    tracing::warn!(free_bytes, floor_bytes, "the host's disk is below its floor");
                    let data = json!({ "free_bytes": free_bytes, "floor_bytes": floor_bytes });
                    shared.publish("host.disk_low", "host", data);
                }
            }
            None if was_low => {
                probe.set_state("running");
                shared.publish("host.disk_has_room", "host", json!({}));
            }
            None => {}
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
