//! The manager of all workspaces: makes them, finds them, keeps their actors alive.

mod boot;
mod upkeep;

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::future::join_all;
use hivekeep_kernel::{
    Address, ChildEnd, Children, Context, Entity, Fault, RateClass, RestartPolicy, ToolCall,
    ToolError, children::ChildOutcome, serve,
};
use hivekeep_runtime::collection::{Collection, MemberEnd};
use serde_json::json;
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    directory::WorkspaceDirectory,
    manager::{Args, Msg, Workspaces},
    messages::LifecycleMsg,
    phase::{MachineProcess, Phase},
    pool::{self, Pool},
    shared::Shared,
    tools,
};

/// Name of the pool below this actor.
const POOL: &str = "pool";
/// For machines that are on their way to run, and then for one to stop. Whoever waits for all has
/// more than both.
const ARRIVAL: Duration = Duration::from_secs(45);
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

impl Entity for Workspaces {
    type Msg = Msg;
    type Args = Args;

    async fn start(shared: Arc<Shared>, me: Context<Msg>) -> Result<Self, Fault> {
        let census = shared.daemon.census.clone();
        let workspaces = Collection::new(&me, census.clone());
        let children = Children::new(me.address.probe().path(), census, me.cell.clone());
        let pool = children.address(POOL, "pool", RestartPolicy::ENTITY);
        let mut manager = Self {
            me,
            shared,
            workspaces,
            children,
            preparing: Default::default(),
            merges: Default::default(),
            pool,
        };
        manager.boot().await?;
        // The pool starts after the workspaces: it finds its own machines among them.
        let args =
            pool::Args { shared: manager.shared.clone(), manager: manager.me.address.clone() };
        manager.children.start::<Pool>(POOL, RestartPolicy::ENTITY, &manager.pool, args)?;
        let halt = halt(manager.shared.daemon.closing.clone(), manager.pool.clone());
        let _detached = manager.me.workers.spawn(halt);
        let (shared, probe) = (manager.shared.clone(), manager.me.address.probe().clone());
        let _detached = manager.me.workers.spawn(upkeep::watch_room(shared, probe));
        let _detached =
            manager.me.workers.spawn(upkeep::watch_lifetimes(manager.shared.directory.clone()));
        Ok(manager)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Tool(call) if too_late(&self.shared, &call) => {
                call.reply.answer(Err(ToolError::daemon_stopping()));
            }
            Msg::Tool(call) => {
                let workers = self.me.workers.clone();
                serve::serve(self, tools::OF_WORKSPACES, &workers, *call);
            }
            Msg::Spawn(plan, reply) => self.spawn_for(*plan, reply),
            Msg::Gone { id, done } => {
                self.shared.directory.remove(id);
                self.workspaces.remove(id);
                let _asker_gone = done.send(());
            }
            // A pool that is down drops the message; its sender sees the reply channel close.
            Msg::Pool(message) => drop(self.pool.send(message)),
            Msg::StopAll(done) => self.stop_all(done),
        }
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        if let Some((id, MemberEnd::GivenUp(reason))) = self.workspaces.handle_end(end.clone())? {
            // The workspace's record and machine stay as they are; a person has to look.
            self.shared.publish("actor.gave_up", id, json!({ "reason": reason }));
        }
        if let ChildOutcome::GaveUp { name, reason } = self.children.handle_end(end)? {
            tracing::error!(actor = %name, %reason, "without the pool every creation boots");
        }
        Ok(())
    }
}

impl Workspaces {
    fn stop_all(&self, done: oneshot::Sender<()>) {
        let _pool_is_down = self.pool.send(pool::Msg::Halt);
        let directory = self.shared.directory.clone();
        let _detached = self.me.workers.spawn(async move {
            stop_all(&directory).await;
            let _asker_gone = done.send(());
        });
    }
}

/// Whether a call would make machines while the daemon is being stopped.
fn too_late(shared: &Shared, call: &ToolCall) -> bool {
    call.tool.class(&call.args) == RateClass::Create && shared.may_start().is_err()
}

/// Tells the pool when the daemon begins to stop: what it makes is refused from then on.
pub(super) async fn halt(closing: CancellationToken, pool: Address<pool::Msg>) {
    closing.cancelled().await;
    let _pool_is_down = pool.send(pool::Msg::Halt);
}

/// Stops what runs, and what is being made or started as soon as it runs: otherwise a machine that
/// is launched a moment later would outlive the daemon. Each is told once.
pub(super) async fn stop_all(directory: &WorkspaceDirectory) {
    let until = Instant::now() + ARRIVAL;
    let mut told = HashSet::new();
    loop {
        let late = Instant::now() >= until;
        let mut moving = Vec::new();
        let mut stops = Vec::new();
        for card in directory.all() {
            if told.contains(&card.id) {
                continue;
            }
            if !late && matches!(card.phase, Phase::Creating | Phase::Starting) {
                moving.push(card.name);
            } else if card.phase == Phase::Running || card.process != MachineProcess::None {
                told.insert(card.id);
                stops.push(card.address);
            } else if matches!(card.phase, Phase::Creating | Phase::Starting) {
                tracing::warn!(workspace = %card.name, "is still being made: it is not stopped");
            }
        }
        let asked =
            stops.iter().map(|one| one.ask(PATIENCE, |done| LifecycleMsg::Stop(done).into()));
        for outcome in join_all(asked).await {
            if let Err(error) = outcome {
                tracing::warn!(%error, "a workspace did not stop");
            }
        }
        if moving.is_empty() {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests;
