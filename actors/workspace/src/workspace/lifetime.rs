//! `workspace_lifetime`, and the end that it sets: recorded intent, work, recorded outcome.
//!
//! ```text
//! the timer: over ──▶ record LifetimeOver ──▶ destroy, pause or stop ──▶ record LifetimeEnded
//!                ▲                                 │ refused, failed
//!                └───────── after a pause ─────────┘
//! ```
//! Each step begins with what is recorded, so that an end that a crash cut short goes on where it
//! was: a workspace already in its end state is only recorded to have ended.

use chrono::Utc;
use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{CallCx, Reply, ToolError, fault_point};
use serde_json::json;

use super::{Msg, Workspace};
use crate::{
    api::lifetime::{LifetimeSet, WorkspaceLifetime},
    lifetime::{AtEnd, EndChange, Lifetime, LifetimeChange, after, no_time},
    phase::{Phase, Want},
    records::Record,
};

impl Workspace {
    /// `workspace_lifetime`.
    ///
    /// # Errors
    /// `invalid_input` for an end without a time, `snapshot_unsupported` for a sandbox that is to
    /// be paused; when the workspace is being made or removed.
    pub(crate) fn set_lifetime(
        &mut self,
        _: &CallCx,
        input: WorkspaceLifetime,
    ) -> Result<Reply<LifetimeSet>, ToolError> {
        self.on(Want::Lifetime)?;
        self.handle.shared.may_end(self.ledger.plan.spec.isolation, input.at_end)?;
        let end = match (input.lifetime_secs, input.at_least) {
            (None, _) if self.ledger.lifetime.is_none() && input.at_end.is_some() => {
                return Err(no_time());
            }
            (None, _) => EndChange::Keep,
            (Some(None), _) => EndChange::Never,
            (Some(Some(secs)), false) => EndChange::At(after(Utc::now(), secs)),
            (Some(Some(secs)), true) => EndChange::NotBefore(after(Utc::now(), secs)),
        };
        if input.idle_park_secs.is_some() {
            self.handle.shared.may_end(self.ledger.plan.spec.isolation, Some(AtEnd::Park))?;
        }
        let change = LifetimeChange { end, at_end: input.at_end };
        let idle = input.idle_park_secs.map(|secs| Record::IdleParkSet { secs });
        let records: Vec<_> = change
            .is_one()
            .then_some(Record::LifetimeSet(change))
            .into_iter()
            .chain(idle)
            .collect();
        let (workspace, changes) = (self.handle.clone(), self.ending.changes.clone());
        Ok(Reply::later(self.to_its_end(async move {
            let _no_end_meanwhile = changes;
            if !records.is_empty() {
                workspace.commit(records, None).await?;
            }
            let ledger = workspace.shared.logs.state(workspace.id);
            let (lifetime, idle) =
                ledger.map_or((None, None), |it| (it.lifetime, it.idle_park_secs));
            let default = workspace.shared.options.park_after_idle_secs;
            let idle_park_secs = Some(idle.unwrap_or(default)).filter(|secs| *secs > 0);
            let (ends_at, at_end) = lifetime.map(|it| (it.ends_at, it.at_end)).unzip();
            Ok(LifetimeSet { workspace_id: workspace.id, ends_at, at_end, idle_park_secs })
        })))
    }

    /// Begins the next step of the end, if the lifetime is over.
    pub(super) fn lifetime_over(&mut self) {
        let Some(lifetime) = self.ledger.lifetime.filter(|it| it.is_due(Utc::now())) else {
            return;
        };
        if self.ending.waits() || self.phase == Phase::Destroying {
            return;
        }
        match self.end_step(lifetime) {
            Ok(step) => {
                self.ending.under_way = true;
                let actor = self.me.address.clone();
                let _detached = self.ops.spawn(async move {
                    let _removed = actor.send(Msg::EndTried(step.await.err()));
                });
            }
            Err(error) => self.not_ended(error),
        }
    }

    /// Handles the outcome of a step: begins the next one, or a pause.
    pub(super) fn end_tried(&mut self, error: Option<ToolError>) {
        self.ending.under_way = false;
        match error {
            Some(error) => self.not_ended(error),
            None => {
                self.ending.undelay();
                self.lifetime_over();
            }
        }
    }

    fn not_ended(&mut self, error: ToolError) {
        let (code, text) = (error.code.clone(), error.to_text());
        if self.ending.delay(error) {
            tracing::warn!(workspace = %self.handle.id, error = text, "its end is delayed");
            self.handle.publish("workspace.end_delayed", json!({ "code": code, "error": text }));
        }
    }

    /// The next step of an end that is due.
    fn end_step(
        &mut self,
        lifetime: Lifetime,
    ) -> Result<BoxFuture<'static, Result<(), ToolError>>, ToolError> {
        let Lifetime { at_end, ends_at, over } = lifetime;
        let (workspace, name) = (self.handle.clone(), self.ledger.plan.name.clone());
        let told = json!({ "name": name, "at_end": at_end });
        if !over {
            return Ok(async move {
                let record = Record::LifetimeOver { ends_at, at: Utc::now() };
                fault_point!("lifetime.before_over");
                workspace.commit(vec![record], Some(("workspace.lifetime_over", told))).await?;
                fault_point!("lifetime.after_over");
                Ok(())
            }
            .boxed());
        }
        if at_end.holds_in(self.phase) {
            return Ok(async move {
                fault_point!("lifetime.before_ended");
                let event = ("workspace.ended_by_lifetime", told);
                workspace.commit(vec![Record::LifetimeEnded { ends_at }], Some(event)).await
            }
            .boxed());
        }
        Ok(match at_end {
            AtEnd::Destroy => {
                let next = self.on(Want::Destroy)?;
                self.set_phase(next);
                let work = self.destruction("workspace.destroyed");
                async move {
                    work.await?;
                    workspace.publish("workspace.ended_by_lifetime", told);
                    Ok(())
                }
                .boxed()
            }
            AtEnd::Pause => self.turn(Want::Pause, Phase::Paused)?.map(|it| it.map(drop)).boxed(),
            AtEnd::Park => self.begin_park()?.map(|it| it.map(drop)).boxed(),
            AtEnd::Stop => {
                let next = self.on(Want::Stop)?;
                self.stop_machine(next).map(|it| it.map(drop)).boxed()
            }
        })
    }
}
