//! Waking a parked machine: once, however many want it, in a turn among those of all workspaces.
//!
//! ```text
//! Parked ─► a turn ─► quota ─► StartWanted ─► Launched ─► Woken ─► it goes on ─► Up
//!    ▲                            │ failed: nothing of the memory is lost     │ failed
//!    └────────────────────────────┘                                           └──► Crashed
//! ```
//! Up to [`Record::Woken`] the machine is halted and has written nothing; a failure, or the next
//! daemon, ends it and the memory stays valid. After that the disk changes, and the memory is void.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, Reply, Resources, SessionId, ToolError};
use serde_json::json;
use tokio::sync::oneshot;

use super::{
    Msg, ParkMsg, Workspace,
    boot::{Start, StartMemory},
    bring_up::{bring_up_again, fail_start, settle},
    internal_cx, take_down,
    waiting::Waiting,
};
use crate::{
    activity::Activity,
    api::lifecycle::{WorkspaceStart, WorkspaceStarted},
    codes,
    handle::WorkspaceHandle,
    ledger::{DiskChange, ParkedMemory},
    phase::{Phase, Want},
    records::{Planned, Record, StopHow},
};

/// Time for the mailbox to say whether anybody still wants the wake.
const PATIENCE: Duration = Duration::from_secs(10);

impl Workspace {
    /// `workspace_start` of a workspace that sleeps or is being woken.
    ///
    /// # Errors
    /// `invalid_input` for other volumes, which a machine that goes on cannot mount.
    pub(super) fn start_parked(
        &mut self,
        input: &WorkspaceStart,
    ) -> Result<Reply<WorkspaceStarted>, ToolError> {
        if input.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty()) {
            let message = "a machine that goes on where it was mounts no volumes";
            return Err(ToolError::invalid(message).next("leave volumes out, or set from_disk"));
        }
        let awake = self.until_awake();
        let (workspace, plan) = (self.handle.clone(), self.ledger.plan.clone());
        Ok(Reply::later(async move {
            let boot_time_ms = awake.await?;
            Ok(WorkspaceStarted {
                workspace_id: plan.id,
                name: plan.name.to_string(),
                state: Phase::Running,
                ip: workspace.shared.ip(plan.id),
                boot_time_ms,
            })
        }))
    }

    /// Wakes the machine, or waits for a wake under way; the answer is how long that took in milliseconds.
    pub(super) fn until_awake(
        &mut self,
    ) -> impl Future<Output = Result<u64, ToolError>> + Send + use<> {
        let (reply, awake) = oneshot::channel();
        self.wait_awake(Waiting::Awake(reply));
        async move { awake.await.map_err(|_| ToolError::internal("the workspace's actor ended"))? }
    }

    /// Wakes the machine if somebody waits for that and nothing prevents it now.
    pub(super) fn wake_if_wanted(&mut self) {
        if self.phase != Phase::Parked || self.activity != Activity::Idle || self.adopting {
            // The work under way checks again at its end.
            return;
        }
        if !self.is_awaited() {
            return;
        }
        let next = match self.may_start().and_then(|()| self.on(Want::Wake)) {
            Ok(next) => next,
            Err(error) => return self.awake(Err(error)),
        };
        let Some(parked) = self.ledger.parked.as_deref().cloned() else { return };
        self.activity = Activity::Waking;
        self.set_phase(next);
        let memory = StartMemory::Own(parked.wish);
        let waking = Waking {
            workspace: self.handle.clone(),
            plan: self.ledger.plan.clone(),
            owner: self.ledger.owner,
            start: Start { memory: Some(memory), ..self.start_point() },
            change: self.ledger.change.clone(),
            parked,
        };
        let actor = self.me.address.clone();
        let woken = self.to_its_end(async move {
            let woken = waking.wake().await;
            let _actor_gone = actor.send(Msg::Park(ParkMsg::Woken(woken)));
            Ok(())
        });
        drop(woken);
    }

    pub(super) fn park_news(&mut self, news: ParkMsg) {
        match news {
            ParkMsg::Ended => {
                self.finished(Activity::Parking);
                if self.ledger.parked.is_some() && self.machine.is_none() {
                    self.set_phase(Phase::Parked);
                    return self.wake_if_wanted();
                }
                // The workspace goes on, or was stopped meanwhile: held messages are judged by that.
                self.awake(Ok(0));
            }
            ParkMsg::StillWanted(reply) => {
                let awaited = self.is_awaited();
                let _asker_gone = reply.send(awaited);
            }
            ParkMsg::Woken(outcome) => {
                self.finished(Activity::Waking);
                match outcome {
                    Ok(Some(took_ms)) => self.awake(Ok(took_ms)),
                    // Given up since nobody waited; calls that came since then begin a new wake.
                    Ok(None) => self.wake_if_wanted(),
                    Err(error) => self.awake(Err(error)),
                }
            }
        }
    }
}

/// Work of one wake.
struct Waking {
    workspace: WorkspaceHandle,
    plan: Planned,
    owner: Option<SessionId>,
    start: Start,
    change: Option<DiskChange>,
    parked: ParkedMemory,
}

impl Waking {
    /// Wakes the machine: milliseconds that it took, or `None` if nobody wanted it any more.
    async fn wake(self) -> Result<Option<u64>, ToolError> {
        let Self { workspace, plan, owner, start, change, parked } = self;
        let begun = std::time::Instant::now();
        let shared = &workspace.shared;
        let turn = shared.wakes.acquire().await;
        let asked = workspace.actor.ask(PATIENCE, |reply| Msg::Park(ParkMsg::StillWanted(reply)));
        if !asked.await.unwrap_or(false) {
            settle(&workspace, Phase::Parked, None).await;
            return Ok(None);
        }
        let memory = plan.spec.memory();
        let reserved = match owner {
            Some(owner) => shared.daemon.sessions.reserve(owner, memory).await,
            None => Ok(()),
        };
        if let Err(error) = reserved {
            settle(&workspace, Phase::Parked, None).await;
            return Err(error);
        }
        let ended = async {
            if let Some(left) = &parked.left {
                shared.driver(plan.spec.isolation)?.kill(left).await?;
            }
            bring_up_again(&workspace, &plan, start, change, &internal_cx(&workspace)).await
        };
        let woken = ended.await;
        drop(turn);
        match woken {
            Ok(_) => {
                let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                workspace
                    .publish("workspace.woken", json!({ "name": plan.name, "took_ms": took_ms }));
                settle(&workspace, Phase::Running, None).await;
                Ok(Some(took_ms))
            }
            Err(error) => Err(not_woken(&workspace, &plan, owner, memory, error).await),
        }
    }
}

/// Leaves a machine that could not be woken parked, if it has not gone on, and says what can be done.
async fn not_woken(
    workspace: &WorkspaceHandle,
    plan: &Planned,
    owner: Option<SessionId>,
    memory: Resources,
    error: ToolError,
) -> ToolError {
    let recorded = workspace.shared.logs.state(workspace.id);
    if recorded.is_none_or(|ledger| ledger.parked.is_none()) {
        fail_start(workspace, plan, &error).await;
        return error;
    }
    if let Some(owner) = owner {
        workspace.shared.daemon.sessions.release(owner, memory);
    }
    let undone = async {
        take_down::kill_machine(workspace, plan).await?;
        let record = Record::Stopped { at: chrono::Utc::now(), how: StopHow::Killed };
        let event = ("workspace.wake_failed", json!({ "name": plan.name, "error": error.code }));
        workspace.commit(vec![record], Some(event)).await
    };
    let (code, reason) = (error.code.clone(), error.to_text());
    match undone.await {
        Ok(()) => settle(workspace, Phase::Parked, Some(reason.clone())).await,
        Err(left) => {
            let reason = format!("{reason}; and it could not be undone: {left}");
            settle(workspace, Phase::Crashed, Some(reason)).await;
        }
    }
    if error.retryable {
        return error;
    }
    ToolError::new(Layer::Machine, codes::NOT_WOKEN, format!("it could not be woken: {reason}"))
        .next("workspace_start with from_disk gives its memory up and starts it from its disk")
        .detail("code", code.to_string())
}

impl Workspace {
    /// Gives up the memory of a parked workspace before it starts from its disk.
    pub(super) fn give_memory_up(
        &self,
        cx: &CallCx,
    ) -> impl Future<Output = Result<(), ToolError>> + Send + use<> {
        let (workspace, memory) = (self.handle.clone(), self.ledger.plan.spec.memory());
        let (name, session) = (self.ledger.plan.name.clone(), cx.session);
        let left = self.ledger.parked.as_ref().and_then(|parked| parked.left.clone());
        let driver = self.handle.shared.driver(self.ledger.plan.spec.isolation);
        async move {
            if let Some(left) = left {
                driver?.kill(&left).await?;
            }
            let sessions = &workspace.shared.daemon.sessions;
            sessions.reserve(session, memory).await?;
            let event = ("workspace.memory_given_up", json!({ "name": name }));
            let noted = workspace.commit(vec![Record::MemoryGivenUp], Some(event)).await;
            if noted.is_err() {
                sessions.release(session, memory);
            }
            noted
        }
    }
}
