//! `workspace_pause` and `workspace_resume`.

use std::time::Duration;

use hivekeep_kernel::{Reply, ToolError};
use serde_json::json;

use super::{Workspace, bring_up::settle, identity, link_state, snapshot::no_snapshots};
use crate::{
    activity::Activity,
    api::snapshots::Halted,
    phase::{Phase, Want},
};

/// Time for a guest that goes on to be reached.
const GUEST_PATIENCE: Duration = Duration::from_secs(10);

impl Workspace {
    /// `workspace_pause`.
    ///
    /// # Errors
    /// When it does not run, or its kind cannot be paused.
    pub(crate) fn halt(&mut self) -> Result<Reply<Halted>, ToolError> {
        self.turn(Want::Pause, Phase::Paused)
    }

    /// `workspace_resume`.
    ///
    /// # Errors
    /// When it is not paused.
    pub(crate) fn unhalt(&mut self) -> Result<Reply<Halted>, ToolError> {
        self.turn(Want::Resume, Phase::Running)
    }

    fn turn(&mut self, want: Want, to: Phase) -> Result<Reply<Halted>, ToolError> {
        self.on(want)?;
        let handle = self.ledger.handle().cloned().ok_or_else(|| self.phase.busy())?;
        let driver = self.handle.shared.driver(self.ledger.plan.spec.isolation)?;
        driver.snapshots().ok_or_else(no_snapshots)?;
        self.activity = Activity::Pausing;
        let (workspace, plan, ops) =
            (self.handle.clone(), self.ledger.plan.clone(), self.ops.clone());
        let (from, planned) = (self.phase, plan.clone());
        let mut link_state = self.link_state.subscribe();
        Ok(Reply::later(async move {
            let (reply, answer) = tokio::sync::oneshot::channel();
            let _detached = ops.spawn(async move {
                let snapshots = driver.snapshots().ok_or_else(no_snapshots);
                let turned = match (snapshots, to) {
                    (Ok(snapshots), Phase::Paused) => {
                        snapshots.pause(&handle).await.map_err(ToolError::from)
                    }
                    (Ok(snapshots), _) => snapshots.resume(&handle).await.map_err(ToolError::from),
                    (Err(error), _) => Err(error),
                };
                let now = if turned.is_ok() { to } else { from };
                settle(&workspace, now, None).await;
                let _actor_gone = workspace.actor.send(super::Msg::Finished(Activity::Pausing));
                if turned.is_ok() {
                    workspace.publish(
                        if to == Phase::Paused { "workspace.paused" } else { "workspace.resumed" },
                        json!({}),
                    );
                }
                let clock = async {
                    let link = link_state::usable(&mut link_state, GUEST_PATIENCE).await?;
                    identity::configure(&link, &planned, false).await
                };
                let clock_error = match (&turned, to) {
                    (Ok(()), Phase::Running) => clock.await.err().map(|error| error.to_text()),
                    _ => None,
                };
                let _caller_gone = reply.send(turned.map(|()| clock_error));
            });
            let answer = answer.await.map_err(|_| ToolError::internal("the pause's work ended"))?;
            Ok(Halted {
                workspace_id: plan.id,
                name: plan.name.to_string(),
                state: to,
                clock_error: answer?,
            })
        }))
    }
}
