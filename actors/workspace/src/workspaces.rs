//! The manager of all workspaces: makes them, finds them, keeps their actors alive.

mod adopt;
mod boot;
mod claim;
mod create;
mod fork;
mod merge;
mod messages;
mod network;
mod parallel;
mod prepare;
mod reserve;
mod room;
mod spawn;
mod state;
mod stop_all;
mod timer;

use std::sync::Arc;

use hivekeep_kernel::{
    CallCx, ChildEnd, Children, Context, Entity, Fault, Reply, RestartPolicy, ToolError,
    children::ChildOutcome, serve,
};
use hivekeep_runtime::collection::{Collection, MemberEnd};
use serde_json::json;
use tokio::sync::oneshot;

pub(crate) use create::make_one;
pub use messages::Msg;
pub use state::{Seed, Workspaces};

use crate::{
    api::lifecycle::{Size, WorkspaceList, WorkspaceListed, WorkspaceRow},
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
    /// `workspace_list`.
    ///
    /// # Errors
    /// None.
    pub(crate) fn list(
        &mut self,
        cx: &CallCx,
        input: WorkspaceList,
    ) -> Result<Reply<WorkspaceListed>, ToolError> {
        let wanted = input.labels.unwrap_or_default();
        let cards = self.shared.directory.cards().into_iter();
        let workspaces: Vec<_> = cards
            .filter(|card| self.shared.is_shown(cx, card))
            .filter(|card| input.state_filter.is_none_or(|state| card.phase == state))
            .filter(|card| wanted.iter().all(|(name, value)| card.labels.get(name) == Some(value)))
            .map(|card| WorkspaceRow {
                workspace_id: card.id,
                name: card.name.to_string(),
                state: card.phase,
                process: card.process,
                ip: self.shared.ip(card.id),
                owned: card.owner == Some(cx.session),
                orphaned: card.owner.is_none(),
                resources: Size::of(&card.spec),
                isolation: card.spec.isolation,
                created_at: card.created_at,
                labels: Arc::unwrap_or_clone(card.labels),
                ends_at: card.lifetime.map(|it| it.ends_at),
                at_end: card.lifetime.map(|it| it.at_end),
            })
            .collect();
        Ok(Reply::Now(WorkspaceListed { count: workspaces.len(), workspaces }))
    }

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
