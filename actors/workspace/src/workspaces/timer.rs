//! Durable timer of workspaces' lifetimes, and of idle ones: each time it looks, it goes by what the
//! records say.

use std::time::Duration;

use chrono::Utc;

use crate::{directory::WorkspaceDirectory, workspace};

/// How often ends are looked for; so much later than its time one may be carried out.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Tells each workspace whose lifetime is over, until it has none any more. What is to be done, and
/// when it is tried again, is the workspace's own affair.
pub(super) async fn tell(directory: WorkspaceDirectory) {
    loop {
        for workspace in directory.over(Utc::now()) {
            // One that is gone is told when it is back.
            let _gone = workspace.send(workspace::Msg::LifetimeOver);
        }
        for workspace in directory.may_idle() {
            let _gone = workspace.send(workspace::Msg::LookIdle);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
