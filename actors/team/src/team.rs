//! One team: its members' inboxes, and what it takes to make and to remove it.
//!
//! The records (`records.rs`) say how far it got; an incarnation that finds a plan without its end,
//! or a removal, goes on from there. At most one of making and removing is at work.

mod build;
mod end;
mod speak;
mod standing;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use hivekeep_kernel::{
    Address, CallCx, ChildNews, Entity, Fault, Me, Nursery, Policy, SessionId, ToolError,
    WorkspaceId,
};
use hivekeep_store::NewEvent;
use serde_json::{Value, json};
use tokio::sync::oneshot;

pub(crate) use end::Ended;
pub(crate) use speak::{Said, Speech};
pub(crate) use standing::{authorize, members as look_at_members};

use crate::{
    cards::keep::{Keeping, Told},
    desk::{self, Desk},
    house::House,
    mailbox::{self, Mailbox},
    records::{self, Plan, Record, State},
    refuse, teams,
};
use speak::Limiters;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, ToolError>>;

/// What a team can be told.
pub(crate) enum Msg {
    /// What is it?
    Look(oneshot::Sender<Card>),
    /// Make the members.
    Build(CallCx, oneshot::Sender<Result<Card, NotBuilt>>),
    /// They are made, and it is recorded; or not.
    Built(Result<Vec<WorkspaceId>, ToolError>),
    /// A session has all members' workspaces: it operates the team from now on.
    Own(SessionId, Reply<()>),
    /// It is recorded.
    Owned(SessionId, Result<(), ToolError>, Reply<()>),
    /// A member says something.
    Speak(Speech, Reply<Said>),
    /// It is going to be removed.
    WantEnd(Reply<()>),
    /// That is recorded, or not.
    EndWanted(Result<(), ToolError>, Reply<()>),
    /// Remove it.
    End(oneshot::Sender<Ended>),
    /// What came of it.
    Done(Ended),
}

/// A team that was not made.
#[derive(Debug)]
pub(crate) struct NotBuilt {
    pub(crate) error: ToolError,
    /// Whether everything of it is gone again.
    pub(crate) gone: bool,
}

/// A team as others see it.
#[derive(Clone)]
pub(crate) struct Card {
    pub(crate) state: Arc<State>,
    /// Of the members, in the plan's order; empty unless it is ready.
    pub(crate) mailboxes: Vec<Address<mailbox::Msg>>,
    /// The same.
    pub(crate) desks: Vec<Address<desk::Msg>>,
    /// What became of the members' cards in the vault.
    pub(crate) cards: Told,
}

impl Card {
    pub(crate) fn plan(&self) -> &Plan {
        &self.state.plan
    }

    /// The number of a member.
    ///
    /// # Errors
    /// `member_not_found`.
    pub(crate) fn member(&self, name: &str) -> Result<usize, ToolError> {
        let plan = self.plan();
        let found = plan.members.iter().position(|member| member.name == name);
        let all = || plan.members.iter().map(|member| member.name.clone()).collect();
        found.ok_or_else(|| refuse::no_member(&plan.name, name, all()))
    }

    /// Refuses what only a ready team does.
    ///
    /// # Errors
    /// `team_state`.
    pub(crate) fn ready(&self) -> Result<(), ToolError> {
        match self.state.word() {
            "ready" => Ok(()),
            "creating" => Err(refuse::creating(&self.plan().name)),
            _ => Err(refuse::destroying(&self.plan().name)),
        }
    }
}

/// What an incarnation is made from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) house: Arc<House>,
    pub(crate) id: hivekeep_kernel::TeamId,
    pub(crate) teams: Address<teams::Msg>,
    /// Planned just now: its first incarnation waits to be told to build.
    pub(crate) fresh: Arc<AtomicBool>,
}

/// A team.
pub(crate) struct Team {
    me: Me<Msg>,
    seed: Seed,
    state: Arc<State>,
    mailboxes: Vec<Address<mailbox::Msg>>,
    desks: Vec<Address<desk::Msg>>,
    limiters: Limiters,
    nursery: Nursery,
    cards: Told,
    keeping: Option<Keeping>,
    /// Who waits for it to be made.
    building: Option<oneshot::Sender<Result<Card, NotBuilt>>>,
    /// It is being removed; who waits for that.
    ending: Option<Vec<oneshot::Sender<Ended>>>,
    /// Why its making failed, while it is being undone.
    failed: Option<ToolError>,
}

impl Entity for Team {
    type Msg = Msg;
    type Seed = Seed;

    async fn start(seed: Seed, me: Me<Msg>) -> Result<Self, Fault> {
        let (journal, stream) = (seed.house.journal.clone(), records::stream(seed.id));
        let loaded = tokio::task::spawn_blocking(move || records::load(&journal, &stream)).await;
        let state = loaded
            .map_err(|error| Fault::new(error.to_string()))?
            .map_err(Fault::new)?
            .ok_or_else(|| Fault::new("the team is forgotten"))?;
        let path = me.address.probe().path().to_owned();
        let nursery = Nursery::new(&path, seed.house.census.clone(), me.cell.clone());
        let limiters = Limiters::new(&seed.house, state.plan.members.len());
        let mut team = Self {
            me,
            state: Arc::new(state),
            mailboxes: Vec::new(),
            desks: Vec::new(),
            limiters,
            nursery,
            cards: Told::default(),
            keeping: None,
            building: None,
            ending: None,
            failed: None,
            seed,
        };
        let fresh = team.seed.fresh.swap(false, SeqCst);
        if team.state.word() == "ready" {
            team.open_mailboxes()?;
            team.keep_cards();
        } else if !fresh {
            tracing::info!(team = %team.state.plan.name, state = team.state.word(), "is removed");
            team.end(None);
        }
        team.show();
        Ok(team)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            // Whoever asked may have gone; so below.
            Msg::Look(reply) => drop(reply.send(self.card())),
            Msg::Build(cx, reply) => self.build(cx, reply),
            Msg::Built(outcome) => self.built(outcome)?,
            Msg::Own(by, reply) => self.own(by, reply),
            Msg::Owned(by, outcome, reply) => {
                if outcome.is_ok() {
                    self.change(|state| state.owner = by);
                    // From now on they are looked at in the new owner's name.
                    if self.keeping.is_some() {
                        self.keep_cards();
                    }
                }
                drop(reply.send(outcome));
            }
            Msg::Speak(speech, reply) => self.speak(speech, reply),
            Msg::WantEnd(reply) => self.want_end(reply),
            Msg::EndWanted(outcome, reply) => {
                if outcome.is_ok() {
                    self.change(|state| state.ending = true);
                }
                drop(reply.send(outcome));
            }
            Msg::End(reply) => self.end(Some(reply)),
            Msg::Done(ended) => self.done(ended),
        }
        Ok(())
    }

    fn child(&mut self, news: ChildNews) -> Result<(), Fault> {
        self.nursery.hear(news).map(drop)
    }
}

impl Team {
    fn card(&self) -> Card {
        Card {
            state: self.state.clone(),
            mailboxes: self.mailboxes.clone(),
            desks: self.desks.clone(),
            cards: self.cards.clone(),
        }
    }

    fn keep_cards(&mut self) {
        let (house, state) = (self.seed.house.clone(), self.state.clone());
        let keeping = Keeping::begin(&self.me.workers, house, state, self.cards.clone());
        if let Some(before) = self.keeping.replace(keeping) {
            before.end();
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut State)) {
        change(Arc::make_mut(&mut self.state));
        self.show();
    }

    fn show(&self) {
        self.me.address.probe().set_state(self.state.word());
    }

    fn open_mailboxes(&mut self) -> Result<(), Fault> {
        let state = self.state.clone();
        for (number, member) in state.plan.members.iter().enumerate() {
            let address = self.nursery.address(&member.name, "mailbox", Policy::ENTITY);
            let seed = mailbox::Seed {
                house: self.seed.house.clone(),
                team: self.seed.id,
                number,
                member: member.name.clone(),
            };
            self.nursery.start::<Mailbox>(&member.name, Policy::ENTITY, &address, seed)?;
            self.mailboxes.push(address);
        }
        self.open_desks()
    }

    fn open_desks(&mut self) -> Result<(), Fault> {
        let state = self.state.clone();
        let workspaces = state.workspaces.iter().flatten();
        for (number, (member, workspace)) in state.plan.members.iter().zip(workspaces).enumerate() {
            let name = format!("{}.tasks", member.name);
            let address = self.nursery.address(&name, "desk", Policy::ENTITY);
            let seed = desk::Seed {
                house: self.seed.house.clone(),
                team: self.seed.id,
                owner: state.owner,
                number,
                member: member.name.clone(),
                workspace: *workspace,
            };
            self.nursery.start::<Desk>(&name, Policy::ENTITY, &address, seed)?;
            self.desks.push(address);
        }
        Ok(())
    }

    fn own(&mut self, by: SessionId, reply: Reply<()>) {
        let event = ("team.adopted", json!({ "by": by, "from": self.state.owner }));
        let write = commit(self.seed.house.clone(), &self.state, Record::Owned { by }, Some(event));
        let team = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            let outcome = write.await;
            // A team that is gone is followed by one that reads the journal.
            let _ = team.send(Msg::Owned(by, outcome, reply));
        });
    }

    fn want_end(&mut self, reply: Reply<()>) {
        if self.building.is_some() {
            return drop(reply.send(Err(refuse::creating(&self.state.plan.name))));
        }
        // Recorded already, or as good as: a plan without its end is undone.
        if self.state.ending {
            return drop(reply.send(Ok(())));
        }
        let write = commit(self.seed.house.clone(), &self.state, Record::Ending, None);
        let team = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            let outcome = write.await;
            hivekeep_kernel::fault_point!("team.after_destroy_wanted");
            let _ = team.send(Msg::EndWanted(outcome, reply));
        });
    }
}

/// Writes a record of a team.
fn commit(
    house: Arc<House>,
    state: &State,
    record: Record,
    event: Option<(&'static str, Value)>,
) -> impl Future<Output = Result<(), ToolError>> + Send + 'static {
    let (id, stream) = (state.plan.id, records::stream(state.plan.id));
    let events = event.map(|(kind, mut data)| {
        data["name"] = json!(state.plan.name);
        NewEvent { kind: kind.to_owned(), subject: id.to_string(), data }
    });
    async move {
        let records = vec![records::encode(&record)];
        let events = events.into_iter().collect();
        let written = house.journal.append_and_publish(&stream, records, events).await;
        written.map(drop).map_err(|error| refuse::store(&error))
    }
}
