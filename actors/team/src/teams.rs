//! The manager of all teams: knows their names and limits, serves the tool, and routes to each
//! team's actor by its address.

mod create;
mod destroy;
mod messages;
mod removals;
mod show;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::AtomicBool},
};

use hivekeep_kernel::{
    Address, ChildNews, Children, Context, Entity, Fault, RestartPolicy, TeamId, ToolCall,
    ToolError, children::Outcome, mailbox::Unavailable, serve,
};
use hivekeep_runtime::log::{self, Streams};
use tokio::sync::oneshot;

use removals::{Removal, Removals};

use crate::{
    cards,
    directory::{Directory, Limits},
    records::State,
    refuse,
    shared::TeamShared,
    team::{self, Manager, Team},
    tools::team::FAMILY,
};

/// A message to the manager.
pub struct Msg(pub(crate) Inner);

// A mailbox boxes every message; a box inside would be the second one.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Inner {
    /// A routed call.
    Tool(ToolCall),
    /// Take the plan into the directory, if the limits allow it.
    Admit(Box<State>, Reply<()>),
    /// A plan is durable: give it an actor.
    Spawn(TeamId, oneshot::Sender<Result<Address<team::Msg>, Fault>>),
    /// A team is no more.
    Gone(TeamId, Option<oneshot::Sender<()>>),
    /// A team and those below it, each after those below it. Nothing more is put below them.
    Close(TeamId, Reply<Cascade>),
    /// The call that closed them may not remove them: those that no other call has closed are open
    /// again.
    Reopen(Vec<TeamId>),
    /// Remove the teams that were closed; the topmost has this id and name. Their records say so
    /// already.
    Remove(TeamId, String, Cascade, Reply<Removal>),
    /// Tell when nothing is below a team.
    Childless(TeamId, oneshot::Sender<()>),
    /// Finds the team of a name.
    Find(String, Reply<Address<team::Msg>>),
}

type Reply<T> = oneshot::Sender<Result<T, ToolError>>;
pub(crate) type Cascade = Vec<(TeamId, Address<team::Msg>)>;

impl Msg {
    pub(crate) fn gone(id: TeamId) -> Self {
        Self(Inner::Gone(id, None))
    }
}

impl Manager for Address<Msg> {
    fn when_childless(&self, id: TeamId, free: oneshot::Sender<()>) -> Result<(), Unavailable> {
        self.send(Msg(Inner::Childless(id, free)))
    }

    fn gone(&self, id: TeamId) {
        // A manager that is gone reads the journal, in which the team is no more.
        drop(self.send(Msg::gone(id)));
    }
}

impl From<ToolCall> for Msg {
    fn from(call: ToolCall) -> Self {
        Self(Inner::Tool(call))
    }
}

/// The manager of teams.
pub struct Teams {
    pub(crate) me: Context<Msg>,
    pub(crate) shared: Arc<TeamShared>,
    pub(crate) directory: Directory,
    pub(crate) places: HashMap<TeamId, Address<team::Msg>>,
    removals: Removals,
    children: Children,
}

impl Entity for Teams {
    type Msg = Msg;
    type Seed = Arc<TeamShared>;

    async fn start(shared: Arc<TeamShared>, me: Context<Msg>) -> Result<Self, Fault> {
        // Decisions of an incarnation before may be on their way to the journal.
        shared.teams.settled().await;
        let Streams { loaded: teams, stray } = log::read_all::<State>(&shared.journal).await?;
        for stream in stray {
            tracing::warn!(%stream, "what is recorded of a team without a plan is removed");
            if let Err(error) = shared.journal.forget(&stream).await {
                tracing::warn!(%stream, %error, "it stays until the next start");
            }
        }
        let options = &shared.options;
        let directory = Directory::new(Limits {
            teams: options.max_teams,
            total_vms: options.max_total_vms,
            vms_per_team: options.max_vms_per_team,
            depth: options.max_nesting_depth,
        });
        let path = me.address.probe().path().to_owned();
        let children = Children::new(&path, shared.census.clone(), me.cell.clone());
        let (places, removals) = (HashMap::new(), Removals::default());
        let mut manager = Self { me, shared, directory, places, removals, children };
        let teams: Vec<_> = teams.into_iter().map(|(_, loaded)| loaded.state).collect();
        let known = teams.iter().map(|state| state.plan.id).collect();
        let _detached = manager.me.workers.spawn(cards::keep::sweep(manager.shared.clone(), known));
        for state in teams {
            manager.directory.restore(state.plan.id, state.entry());
            if state.ending {
                // Its record keeps it closed.
                manager.removals.close(&[state.plan.id]);
            }
            manager.spawn_team(state.plan.id, false)?;
        }
        Ok(manager)
    }

    fn handle(&mut self, Msg(message): Msg) -> Result<(), Fault> {
        match message {
            Inner::Tool(call) => {
                let workers = self.me.workers.clone();
                serve::serve(self, &[&FAMILY], &workers, call);
            }
            // Whoever asked may have gone; so below.
            Inner::Admit(state, reply) => {
                let admitted = self.directory.admit(state.plan.id, state.entry());
                drop(reply.send(admitted.map_err(refuse::plan)));
            }
            Inner::Spawn(id, reply) => drop(reply.send(self.spawn_team(id, true))),
            Inner::Gone(id, done) => {
                self.directory.release(id);
                self.places.remove(&id);
                self.removals.gone(id);
                self.tell_childless();
                self.children.stop(&id.to_string(), "destroyed");
                if let Some(done) = done {
                    let _ = done.send(());
                }
            }
            Inner::Close(id, reply) => {
                // Whoever asked has gone: nobody else would open them again.
                if let Err(Ok(cascade)) = reply.send(self.close(id)) {
                    self.reopen(ids(&cascade));
                }
            }
            Inner::Reopen(ids) => self.reopen(ids),
            Inner::Remove(id, name, cascade, reply) => {
                let manager = self.me.address.clone();
                let work = async move { destroy::remove(&manager, &name, cascade).await };
                drop(reply.send(self.removals.run(id, &self.me.workers, work)));
            }
            Inner::Childless(id, free) => {
                self.removals.wait(id, free);
                self.tell_childless();
            }
            Inner::Find(name, reply) => {
                drop(reply.send(self.find(Some(&name)).map(|(_, team)| team)));
            }
        }
        Ok(())
    }

    fn child(&mut self, news: ChildNews) -> Result<(), Fault> {
        if let Outcome::GaveUp { name, reason } = self.children.hear(news)? {
            // Its records and its members stay as they are; a person has to look.
            tracing::error!(actor = %name, %reason, "a team was given up");
        }
        Ok(())
    }
}

impl Teams {
    fn spawn_team(&mut self, id: TeamId, fresh: bool) -> Result<Address<team::Msg>, Fault> {
        let name = id.to_string();
        let address = self.children.address(&name, "team", RestartPolicy::ENTITY);
        let seed = team::Seed {
            shared: self.shared.clone(),
            id,
            manager: Arc::new(self.me.address.clone()),
            fresh: Arc::new(AtomicBool::new(fresh)),
        };
        self.children.start::<Team>(&name, RestartPolicy::ENTITY, &address, seed)?;
        self.places.insert(id, address.clone());
        Ok(address)
    }

    /// The team of a name.
    ///
    /// # Errors
    /// `team_not_found`, or `team_state` while it is only a plan.
    pub(crate) fn find(
        &self,
        name: Option<&str>,
    ) -> Result<(TeamId, Address<team::Msg>), ToolError> {
        let name = name.ok_or_else(|| missing("name"))?;
        let (id, _) = self.directory.find(name).ok_or_else(|| refuse::no_team(name))?;
        let place = self.places.get(&id).ok_or_else(|| refuse::creating(name))?;
        Ok((id, place.clone()))
    }

    fn close(&mut self, id: TeamId) -> Result<Cascade, ToolError> {
        let ids = self.directory.cascade(id);
        let planned = |id: TeamId| refuse::creating(self.directory.name(id).unwrap_or("the team"));
        let places = ids.iter().map(|id| {
            let place = self.places.get(id).ok_or_else(|| planned(*id))?;
            Ok((*id, place.clone()))
        });
        let cascade = places.collect::<Result<_, ToolError>>()?;
        self.directory.close(&ids, true);
        self.removals.close(&ids);
        Ok(cascade)
    }

    fn reopen(&mut self, ids: Vec<TeamId>) {
        self.directory.close(&self.removals.reopen(ids), false);
    }

    fn tell_childless(&mut self) {
        let above: HashSet<_> = self.directory.all().filter_map(|(_, team)| team.parent).collect();
        self.removals.tell(|id| above.contains(&id));
    }
}

pub(crate) fn ids(cascade: &Cascade) -> Vec<TeamId> {
    cascade.iter().map(|(id, _)| *id).collect()
}

#[cfg(test)]
pub(crate) mod tests;

/// An input that the action needs.
pub(crate) fn missing(field: &str) -> ToolError {
    ToolError::invalid(format!("{field} is missing")).next("check the tool's schema")
}
