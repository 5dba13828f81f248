//! The manager of all teams: knows their names and limits, serves the tool, and routes to each
//! team's actor by its address.

mod create;
mod destroy;
mod messages;
mod show;

use std::{
    collections::HashSet,
    sync::{Arc, atomic::AtomicBool},
};

use hivekeep_kernel::{
    Address, ChildEnd, Context, Entity, Fault, TeamId, ToolCall, ToolError,
    mailbox::ActorUnavailable, serve,
};
use hivekeep_runtime::collection::{self, Collection, CollectionMember};
use tokio::sync::oneshot;

use destroy::{Removal, Removals};
pub use show::{Picture, Seen, TeamsHandle};

use crate::{
    cards,
    directory::{Directory, TeamEntry},
    records::State,
    refuse,
    shared::TeamShared,
    team::{self, TeamActor, TeamManager},
    tools::FAMILY,
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

impl TeamManager for Address<Msg> {
    fn when_childless(
        &self,
        id: TeamId,
        free: oneshot::Sender<()>,
    ) -> Result<(), ActorUnavailable> {
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
    pub(crate) teams: Collection<TeamEntry>,
    removals: Removals,
}

impl CollectionMember for TeamEntry {
    type Id = TeamId;
    type Actor = TeamActor;
    const KIND: &'static str = "team";

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }
}

impl Entity for Teams {
    type Msg = Msg;
    type Args = Arc<TeamShared>;

    async fn start(shared: Arc<TeamShared>, me: Context<Msg>) -> Result<Self, Fault> {
        // Decisions of an incarnation before may be on their way to the journal.
        shared.teams.settled().await;
        let all = collection::load::<State, TeamId>(&shared.journal).await?;
        let teams = Collection::new(&me, shared.census.clone());
        let mut manager = Self { me, shared, teams, removals: Removals::default() };
        let known = all.iter().map(|(id, _)| *id).collect();
        let _detached = manager.me.workers.spawn(cards::keep::sweep(manager.shared.clone(), known));
        for (id, team) in all {
            if let Err(refused) = manager.teams.insert(id, team.state.entry()) {
                tracing::error!(team = %id, ?refused, "a team of a name that another has is left alone");
                continue;
            }
            if team.state.ending {
                // The team's record keeps it closed.
                manager.removals.close(&[id]);
            }
            manager.start_team(id, false)?;
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
            Inner::Admit(state, reply) => drop(reply.send(self.admit(&state))),
            Inner::Spawn(id, reply) => drop(reply.send(self.start_team(id, true))),
            Inner::Gone(id, done) => {
                self.teams.remove(id);
                self.removals.gone(id);
                self.tell_childless();
                if let Some(done) = done {
                    let _ = done.send(());
                }
            }
            Inner::Close(id, reply) => {
                // Whoever asked has gone: nobody else would open them again.
                if let Err(Ok(cascade)) = reply.send(self.close(id)) {
                    self.removals.reopen(ids(&cascade));
                }
            }
            Inner::Reopen(ids) => self.removals.reopen(ids),
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
                drop(reply.send(self.find(&name).map(|(_, team)| team)));
            }
        }
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        // Members of a team that is given up stay as they are, too; a person has to look.
        self.teams.handle_end(end).map(drop)
    }
}

impl Teams {
    fn directory(&self) -> Directory<'_> {
        self.teams.iter().collect()
    }

    fn admit(&mut self, state: &State) -> Result<(), ToolError> {
        let (id, entry) = (state.plan.id, state.entry());
        let options = &self.shared.options;
        let fits = self.directory().fits(&entry, options, |id| self.removals.is_closed(id));
        let admitted = self.teams.admit(id, entry, options.max_teams);
        admitted.map_err(|refused| refuse::team(&state.plan.name, refused))?;
        fits.map_err(refuse::plan).inspect_err(|_| drop(self.teams.remove(id)))
    }

    fn start_team(&mut self, id: TeamId, fresh: bool) -> Result<Address<team::Msg>, Fault> {
        let args = team::Args {
            shared: self.shared.clone(),
            id,
            manager: Arc::new(self.me.address.clone()),
            fresh: Arc::new(AtomicBool::new(fresh)),
        };
        self.teams.start(id, args)
    }

    /// The team of a name.
    ///
    /// # Errors
    /// `team_not_found`, `team_state` while it is only a plan, `actor_unavailable` when it is given up.
    pub(crate) fn find(&self, name: &str) -> Result<(TeamId, Address<team::Msg>), ToolError> {
        let (id, _) = self.teams.find(name).ok_or_else(|| refuse::no_team(name))?;
        Ok((id, self.address(id)?))
    }

    fn address(&self, id: TeamId) -> Result<Address<team::Msg>, ToolError> {
        let name = || self.teams.get(id).map_or("the team", |team| &team.name);
        let down = || match self.teams.given_up(id) {
            Some(reason) => refuse::given_up(name(), reason),
            None => refuse::creating(name()),
        };
        self.teams.address(id).cloned().ok_or_else(down)
    }

    fn close(&mut self, id: TeamId) -> Result<Cascade, ToolError> {
        let ids = self.directory().cascade(id);
        let cascade = ids.iter().map(|id| Ok((*id, self.address(*id)?)));
        let cascade = cascade.collect::<Result<_, ToolError>>()?;
        self.removals.close(&ids);
        Ok(cascade)
    }

    fn tell_childless(&mut self) {
        let above: HashSet<_> = self.teams.iter().filter_map(|(_, team)| team.parent).collect();
        self.removals.tell(|id| above.contains(&id));
    }
}

pub(crate) fn ids(cascade: &Cascade) -> Vec<TeamId> {
    cascade.iter().map(|(id, _)| *id).collect()
}

#[cfg(test)]
pub(crate) mod tests;
