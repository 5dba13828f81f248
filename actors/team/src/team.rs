//! One team: its members' inboxes, and what it takes to make and to remove it.
//!
//! The records (`records.rs`) say how far it got; an incarnation that finds a plan without its end,
//! or a removal, goes on from there. At most one of making and removing is at work.

mod build;
mod end;
mod front;
mod speak;
mod standing;
mod turn;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use hivekeep_kernel::{
    Address, CallCx, ChildNews, Children, Context, Entity, Fault, RestartPolicy, ToolError,
};
use hivekeep_runtime::log;
use tokio::sync::oneshot;

pub(crate) use end::Ended;
pub(crate) use front::Fronts;
pub(crate) use speak::{Said, Speech};
pub(crate) use standing::{authorize, members as look_at_members, with_loads};
pub(crate) use turn::Takeover;

use crate::{
    cards::keep::{Begun, Keeping, Kept, Told},
    desk::{self, TaskQueue},
    mailbox::{self, Mailbox},
    records::{self, Plan, State},
    refuse,
    shared::TeamShared,
    teams,
};
use build::{Made, Unmade};
use speak::{Limiters, Strangers};
use turn::Wrote;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, ToolError>>;

/// What a team can be told.
pub(crate) enum Msg {
    /// What is it?
    Look(oneshot::Sender<Card>),
    /// Make the members.
    Build(CallCx, oneshot::Sender<Result<Card, NotBuilt>>),
    /// They are made, and it is recorded; or not.
    Built(Result<Made, Unmade>),
    /// A session has all members' workspaces: it operates the team from now on.
    Own(Takeover, Reply<()>),
    /// A member says something.
    Speak(Speech, Reply<Said>),
    /// It is going to be removed.
    WantEnd(Reply<()>),
    /// A record is written, or not.
    Wrote(Wrote, Result<(), ToolError>, Reply<()>),
    /// Remove it.
    End(oneshot::Sender<Ended>),
    /// Nothing is below it: what an incarnation before began is gone on with.
    GoOn,
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
    pub(crate) limiters: Limiters,
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
    pub(crate) house: Arc<TeamShared>,
    pub(crate) id: hivekeep_kernel::TeamId,
    pub(crate) teams: Address<teams::Msg>,
    /// Planned just now: its first incarnation waits to be told to build.
    pub(crate) fresh: Arc<AtomicBool>,
}

/// A team.
pub(crate) struct Team {
    me: Context<Msg>,
    seed: Seed,
    state: Arc<State>,
    mailboxes: Vec<Address<mailbox::Msg>>,
    desks: Vec<Address<desk::Msg>>,
    limiters: Limiters,
    strangers: Strangers,
    children: Children,
    cards: Told,
    keeping: Option<Keeping>,
    /// Planned just now, and not told to build yet.
    unbuilt: bool,
    /// Who waits for it to be made.
    building: Option<oneshot::Sender<Result<Card, NotBuilt>>>,
    /// It is being removed; who waits for that.
    ending: Option<Vec<oneshot::Sender<Ended>>>,
    /// That it is to be removed is durable.
    end_recorded: bool,
    /// It is removed: nothing is written of it any more.
    gone: Option<Ended>,
    /// Why its making failed, while it is being undone.
    failed: Option<ToolError>,
    /// A record is being written; what waits for that, as many as the calls that are admitted.
    writing: bool,
    held: Vec<Msg>,
}

impl Entity for Team {
    type Msg = Msg;
    type Seed = Seed;

    async fn start(seed: Seed, me: Context<Msg>) -> Result<Self, Fault> {
        // Whatever comes of this one, the next is not told to build.
        let unbuilt = seed.fresh.swap(false, SeqCst);
        let loaded = log::read::<State>(&seed.house.journal, &records::stream(seed.id)).await?;
        let state = loaded.ok_or_else(|| Fault::new("the team is forgotten"))?.state;
        let path = me.address.probe().path().to_owned();
        let children = Children::new(&path, seed.house.census.clone(), me.cell.clone());
        let limiters = Limiters::new(&seed.house, state.plan.members.len());
        let mut team = Self {
            me,
            state: Arc::new(state),
            mailboxes: Vec::new(),
            desks: Vec::new(),
            limiters,
            strangers: Strangers::new(),
            children,
            cards: Told::default(),
            keeping: None,
            unbuilt,
            building: None,
            ending: None,
            end_recorded: false,
            gone: None,
            failed: None,
            writing: false,
            held: Vec::new(),
            seed,
        };
        team.end_recorded = team.state.ending;
        if team.state.word() == "ready" {
            team.open_mailboxes()?;
            team.keep_cards(None);
        } else if !unbuilt {
            tracing::info!(team = %team.state.plan.name, state = team.state.word(), "is removed");
            team.go_on();
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
            waits @ (Msg::Own(..) | Msg::WantEnd(..) | Msg::End(..) | Msg::GoOn)
                if self.writing =>
            {
                self.held.push(waits);
            }
            Msg::Own(take, reply) => self.own(take, reply),
            Msg::WantEnd(reply) => self.want_end(reply),
            Msg::Wrote(what, outcome, reply) => {
                for held in self.wrote(what, outcome, reply) {
                    self.handle(held)?;
                }
            }
            Msg::Speak(speech, reply) => self.speak(speech, reply),
            Msg::End(reply) => self.end(Some(reply)),
            Msg::GoOn => self.end(None),
            Msg::Done(ended) => self.done(ended),
        }
        Ok(())
    }

    fn child(&mut self, news: ChildNews) -> Result<(), Fault> {
        self.children.hear(news).map(drop)
    }

    async fn stop(&mut self) {
        self.seed.house.fronts.forget(self.seed.id);
    }
}

impl Team {
    fn card(&self) -> Card {
        Card {
            state: self.state.clone(),
            mailboxes: self.mailboxes.clone(),
            desks: self.desks.clone(),
            limiters: self.limiters.clone(),
            cards: self.cards.clone(),
        }
    }

    fn keep_cards(&mut self, begun: Option<Begun>) {
        let team = Kept {
            house: self.seed.house.clone(),
            state: self.state.clone(),
            desks: self.desks.clone(),
            told: self.cards.clone(),
        };
        let before = self.keeping.take();
        self.keeping = Some(Keeping::begin(&self.me.workers, team, begun, before));
    }

    fn change(&mut self, change: impl FnOnce(&mut State)) {
        change(Arc::make_mut(&mut self.state));
        self.show();
    }

    fn show(&self) {
        self.me.address.probe().set_state(self.state.word());
        let open = self.desks.len() == self.state.plan.members.len();
        let card = (open && self.state.word() == "ready").then(|| self.card());
        self.seed.house.fronts.show(self.seed.id, card);
    }

    fn open_mailboxes(&mut self) -> Result<(), Fault> {
        let state = self.state.clone();
        for (number, member) in state.plan.members.iter().enumerate() {
            let address = self.children.address(&member.name, "mailbox", RestartPolicy::ENTITY);
            let seed = mailbox::Seed {
                house: self.seed.house.clone(),
                team: self.seed.id,
                number,
                member: member.name.clone(),
            };
            self.children.start::<Mailbox>(&member.name, RestartPolicy::ENTITY, &address, seed)?;
            self.mailboxes.push(address);
        }
        self.open_desks()?;
        self.show();
        Ok(())
    }

    fn open_desks(&mut self) -> Result<(), Fault> {
        let state = self.state.clone();
        let workspaces = state.workspaces.iter().flatten();
        for (number, (member, workspace)) in state.plan.members.iter().zip(workspaces).enumerate() {
            let name = format!("{}.tasks", member.name);
            let address = self.children.address(&name, "desk", RestartPolicy::ENTITY);
            let seed = desk::Seed {
                house: self.seed.house.clone(),
                team: self.seed.id,
                owner: state.owner,
                number,
                member: member.name.clone(),
                workspace: *workspace,
            };
            self.children.start::<TaskQueue>(&name, RestartPolicy::ENTITY, &address, seed)?;
            self.desks.push(address);
        }
        Ok(())
    }
}
