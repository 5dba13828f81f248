//! Durable timer of lifetimes and of idle workspaces: each look goes by what the records say.

use std::time::Duration;

use chrono::Utc;

use crate::{
    directory::WorkspaceDirectory,
    messages::{LifetimeMsg, ParkMsg},
};

/// Interval between looks for ends; an action may be late by this much.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Notifies each workspace whose lifetime is over, until it has none any more. The workspace decides what
/// is done, and when it is tried again.
pub(super) async fn tell(directory: WorkspaceDirectory) {
    loop {
        for workspace in directory.over(Utc::now()) {
            // A workspace whose actor is gone is notified when it is back.
            let _gone = workspace.send(LifetimeMsg::Over.into());
        }
        for workspace in directory.may_idle() {
            let _gone = workspace.send(ParkMsg::LookIdle.into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
