//! Messages of a backup to a workspace: freeze the disk, and delete the snapshot that this made.

use hivekeep_kernel::{SnapshotId, ToolError};
use tokio::sync::oneshot;

use super::{BackupMsg, Msg, Workspace, bring_up::internal_cx, snapshot};
use crate::activity::Activity;

impl Workspace {
    pub(super) fn backup(&mut self, ask: BackupMsg) {
        match ask {
            BackupMsg::Freeze { name, reply } => self.freeze(name, reply),
            BackupMsg::Release { snapshot, reply } => match self.delete_of_backup(snapshot) {
                Ok(None) => drop(reply.send(Ok(()))),
                Ok(Some(deleted)) => {
                    let answer = async move { drop(reply.send(deleted.await)) };
                    let _detached = self.ops.spawn(answer);
                }
                Err(error) => drop(reply.send(Err(error))),
            },
        }
    }

    fn freeze(&mut self, name: String, reply: oneshot::Sender<Result<SnapshotId, ToolError>>) {
        let mut making = match self.plan_snapshot(name, false) {
            Ok(making) => making,
            Err(error) => return drop(reply.send(Err(error))),
        };
        making.node.by_backup = true;
        self.activity = Activity::Snapshotting;
        let (workspace, plan, cx) =
            (self.handle.clone(), self.ledger.plan.clone(), internal_cx(&self.handle));
        let _detached = self.ops.spawn(async move {
            let made =
                snapshot::make(&workspace, &plan, making, &cx).await.map(|made| made.node.id);
            let _actor_gone = workspace.actor.send(Msg::Finished(Activity::Snapshotting));
            if let Err(Ok(snapshot)) = reply.send(made) {
                // The backup was given up meanwhile.
                let (reply, _) = oneshot::channel();
                let _actor_gone =
                    workspace.actor.send(Msg::Backup(BackupMsg::Release { snapshot, reply }));
            }
        });
    }
}
