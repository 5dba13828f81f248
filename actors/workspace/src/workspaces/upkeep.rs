//! Watches of the manager: lifetimes and idle workspaces, and the room that is left on the host.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{ActorStatus, Shortage};
use serde_json::json;

use crate::{
    directory::WorkspaceDirectory,
    messages::{LifetimeMsg, ParkMsg},
    shared::Shared,
};

/// Interval between looks for ends; an action may be late by this much.
const LIFETIMES_EVERY: Duration = Duration::from_millis(500);
const ROOM_EVERY: Duration = Duration::from_secs(5);

/// Notifies each workspace whose lifetime is over, until it has none any more. The workspace decides what
/// is done, and when it is tried again.
pub(super) async fn watch_lifetimes(directory: WorkspaceDirectory) {
    loop {
        for workspace in directory.over(Utc::now()) {
            // A workspace whose actor is gone is notified when it is back.
            let _gone = workspace.send(LifetimeMsg::Over.into());
        }
        for workspace in directory.may_idle() {
            let _gone = workspace.send(ParkMsg::LookIdle.into());
        }
        tokio::time::sleep(LIFETIMES_EVERY).await;
    }
}

pub(super) async fn watch_room(shared: Arc<Shared>, probe: Arc<ActorStatus>) {
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
        tokio::time::sleep(ROOM_EVERY).await;
    }
}
