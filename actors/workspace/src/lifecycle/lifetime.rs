//! `workspace_lifetime`, and the end that it sets: recorded intent, work, recorded outcome.
//!
//! ```text
//! the timer: over ──▶ record LifetimeOver ──▶ destroy, pause or stop ──▶ record LifetimeEnded
//!                ▲                                 │ refused, failed
//!                └───────── after a pause ─────────┘
//! ```
//! Each step begins with what is recorded, so that an end that a crash cut short goes on where it
//! was: a workspace already in its end state is only recorded to have ended.

use chrono::{DateTime, Utc};
use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{CallCx, Reply, ToolError, WorkspaceId, fault_point};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    lifecycle::stop,
    lifetime::{AtEnd, EndChange, Lifetime, LifetimeChange, MAX_LIFETIME_SECS, after, no_time},
    messages::LifetimeMsg,
    parking::{self, park},
    phase::{Phase, Want},
    records::Record,
    state::Workspace,
};

/// Set when a workspace ends by itself, counted from now, and what happens then;
/// or take its end away. Without lifetime_secs only at_end changes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceLifetime {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// Seconds from now to the end; null: the workspace has no end any more.
    #[serde(default, with = "serde_with::rust::double_option")]
    #[schemars(with = "Option<u64>", range(max = MAX_LIFETIME_SECS))]
    pub lifetime_secs: Option<Option<u64>>,
    /// Action at that end. Default: as before, or `stop`.
    pub at_end: Option<AtEnd>,
    /// Park it by itself after so many idle seconds; 0: never; null: as configured. Default: as before.
    #[serde(default, with = "serde_with::rust::double_option")]
    #[schemars(with = "Option<u64>", range(max = MAX_LIFETIME_SECS))]
    pub idle_park_secs: Option<Option<u64>>,
    /// Only ever extend: an end that is later, or none, stays.
    #[serde(default)]
    pub at_least: bool,
}

/// Lifetime that a workspace has now.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LifetimeSet {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Time at which the workspace ends by itself; null: it does not.
    pub ends_at: Option<DateTime<Utc>>,
    /// Action at that end.
    pub at_end: Option<AtEnd>,
    /// Idle seconds after which the workspace is parked by itself; null: never.
    pub idle_park_secs: Option<u64>,
}

/// `workspace_lifetime`.
///
/// # Errors
/// `invalid_input` for an end without a time, `snapshot_unsupported` for a sandbox that is to
/// be paused; when the workspace is being made or removed.
pub(super) fn set_lifetime(
    state: &mut Workspace,
    _: &CallCx,
    input: WorkspaceLifetime,
) -> Result<Reply<LifetimeSet>, ToolError> {
    state.on(Want::Lifetime)?;
    state.handle.shared.may_end(state.ledger.plan.spec.isolation, input.at_end)?;
    let end = match (input.lifetime_secs, input.at_least) {
        (None, _) if state.ledger.lifetime.is_none() && input.at_end.is_some() => {
            return Err(no_time());
        }
        (None, _) => EndChange::Keep,
        (Some(None), _) => EndChange::Never,
        (Some(Some(secs)), false) => EndChange::At(after(Utc::now(), secs)),
        (Some(Some(secs)), true) => EndChange::NotBefore(after(Utc::now(), secs)),
    };
    if input.idle_park_secs.is_some() {
        state.handle.shared.may_end(state.ledger.plan.spec.isolation, Some(AtEnd::Park))?;
    }
    let change = LifetimeChange { end, at_end: input.at_end };
    let idle = input.idle_park_secs.map(|secs| Record::IdleParkSet { secs });
    let records: Vec<_> =
        change.is_one().then_some(Record::LifetimeSet(change)).into_iter().chain(idle).collect();
    let (workspace, changes) = (state.handle.clone(), state.ending.changes.clone());
    Ok(Reply::later(state.to_its_end(async move {
        let _no_end_meanwhile = changes;
        if !records.is_empty() {
            workspace.commit(records, None).await?;
        }
        let ledger = workspace.shared.logs.state(workspace.id);
        let (lifetime, idle) = ledger.map_or((None, None), |it| (it.lifetime, it.idle_park_secs));
        let default = workspace.shared.options.park_after_idle_secs;
        let idle_park_secs = Some(idle.unwrap_or(default)).filter(|secs| *secs > 0);
        let (ends_at, at_end) = lifetime.map(|it| (it.ends_at, it.at_end)).unzip();
        Ok(LifetimeSet { workspace_id: workspace.id, ends_at, at_end, idle_park_secs })
    })))
}

pub(crate) fn handle(state: &mut Workspace, news: LifetimeMsg) {
    match news {
        LifetimeMsg::Over => lifetime_over(state),
        LifetimeMsg::Tried(error) => end_tried(state, error),
    }
}

/// Begins the next step of the end, if the lifetime is over.
fn lifetime_over(state: &mut Workspace) {
    let Some(lifetime) = state.ledger.lifetime.filter(|it| it.is_due(Utc::now())) else {
        return;
    };
    if state.ending.waits() || state.status.phase == Phase::Destroying {
        return;
    }
    match end_step(state, lifetime) {
        Ok(step) => {
            state.ending.under_way = true;
            let actor = state.me.address.clone();
            let _detached = state.ops.spawn(async move {
                let _removed = actor.send(LifetimeMsg::Tried(step.await.err()).into());
            });
        }
        Err(error) => not_ended(state, error),
    }
}

/// Handles the outcome of a step: begins the next one, or a pause.
fn end_tried(state: &mut Workspace, error: Option<ToolError>) {
    state.ending.under_way = false;
    match error {
        Some(error) => not_ended(state, error),
        None => {
            state.ending.undelay();
            lifetime_over(state);
        }
    }
}

fn not_ended(state: &mut Workspace, error: ToolError) {
    let (code, text) = (error.code.clone(), error.to_text());
    if state.ending.delay(error) {
        tracing::warn!(workspace = %state.handle.id, error = text, "its end is delayed");
        state.handle.publish("workspace.end_delayed", json!({ "code": code, "error": text }));
    }
}

/// The next step of an end that is due.
fn end_step(
    state: &mut Workspace,
    lifetime: Lifetime,
) -> Result<BoxFuture<'static, Result<(), ToolError>>, ToolError> {
    let Lifetime { at_end, ends_at, over } = lifetime;
    let (workspace, name) = (state.handle.clone(), state.ledger.plan.name.clone());
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
    if at_end.holds_in(state.status.phase) {
        return Ok(async move {
            fault_point!("lifetime.before_ended");
            let event = ("workspace.ended_by_lifetime", told);
            workspace.commit(vec![Record::LifetimeEnded { ends_at }], Some(event)).await
        }
        .boxed());
    }
    Ok(match at_end {
        AtEnd::Destroy => {
            let next = state.on(Want::Destroy)?;
            state.set_phase(next);
            let work = stop::destruction(state, "workspace.destroyed");
            async move {
                work.await?;
                workspace.publish("workspace.ended_by_lifetime", told);
                Ok(())
            }
            .boxed()
        }
        AtEnd::Pause => {
            parking::turn(state, Want::Pause, Phase::Paused)?.map(|it| it.map(drop)).boxed()
        }
        AtEnd::Park => park::begin_park(state)?.map(|it| it.map(drop)).boxed(),
        AtEnd::Stop => {
            let next = state.on(Want::Stop)?;
            stop::stop_machine(state, next).map(|it| it.map(drop)).boxed()
        }
    })
}
