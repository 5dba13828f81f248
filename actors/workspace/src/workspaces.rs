//! The manager of all workspaces: makes them, finds them, keeps their actors alive.

mod boot;
mod room;
mod spawn;
mod stop_all;
mod timer;

use std::sync::Arc;

use hivekeep_kernel::{
    ChildEnd, Children, Context, Entity, Fault, RestartPolicy, ToolError, children::ChildOutcome,
    serve,
};
use hivekeep_runtime::collection::{Collection, MemberEnd};
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    manager::{Msg, Seed, Workspaces},
    pool::{self, Pool},
    shared::Shared,
    tools,
};

/// Name of the pool below this actor.
const POOL: &str = "pool";

impl Entity for Workspaces {
    type Msg = Msg;
    type Seed = Seed;

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
        let seed =
            pool::Seed { shared: manager.shared.clone(), manager: manager.me.address.clone() };
        manager.children.start::<Pool>(POOL, RestartPolicy::ENTITY, &manager.pool, seed)?;
        let halt = stop_all::halt(manager.shared.daemon.closing.clone(), manager.pool.clone());
        let _detached = manager.me.workers.spawn(halt);
        let (shared, probe) = (manager.shared.clone(), manager.me.address.probe().clone());
        let _detached = manager.me.workers.spawn(room::tell(shared, probe));
        let _detached = manager.me.workers.spawn(timer::tell(manager.shared.directory.clone()));
        Ok(manager)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Tool(call) if stop_all::too_late(&self.shared, &call) => {
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
            stop_all::stop_all(&directory).await;
            let _asker_gone = done.send(());
        });
    }
}

#[cfg(test)]
mod tests;
