//! A team: one actor that makes its members, holds their inboxes and tasks as values, and removes
//! them.
//!
//! ```text
//!            built                 to be removed
//! creating ─────────► ready ───────────────────────► destroying ─► (forgotten)
//!     │                                                ▲      │
//!     └── a member failed, or a start found it so ─────┘      └── something is left: it stays
//! ```
//! # States
//! The durable state is the log of its records ([`State`]); the word for it is what `status` and
//! `hivekeep ps` show.
//! - `creating`: planned in the journal by the manager of teams, before anything is made. A worker
//!   makes the members (`build.rs`); nothing else is served.
//! - `ready`: each member has an inbox and a task ledger ([`member`]), each a log of its own beside
//!   this one. Messages, receivers, acknowledgements and everything that guests tell pass this
//!   mailbox; none of them waits in it.
//! - `destroying`: a worker removes workspaces, cards and records, the team's own last (`end.rs`).
//!
//! # Who moves it
//! Calls reach it by way of the manager. Its owner's are served in the order of their arrival; any
//! other session's wait until it is known whether that has become the owner (`ownership.rs`). At
//! most one of making and removing is at work. Below another team, a removal that is found at a
//! start waits until nothing is below it.
//!
//! # What may fail
//! - A member cannot be made: the plan is undone, by a removal.
//! - The actor ends: its workers end with it, its logs do not. The next incarnation
//!   continues from what was decided, undoes a plan without its end, continues a removal, and
//!   repeats deliveries that were under way.
//! - A member's stream cannot be read: that inbox, or those tasks, are unavailable; the rest goes
//!   on.
//! - The journal stops: nothing is acknowledged any more, and the daemon ends.

mod build;
mod end;
pub(crate) mod member;
mod message;
mod ownership;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, try_join_all},
};
use hivekeep_kernel::{
    CallCx, Context, Entity, Fault, MessageId, SessionId, TeamId, ToolError,
    mailbox::ActorUnavailable,
};
use hivekeep_runtime::log::Log;
use tokio::sync::oneshot;

pub(crate) use end::RemovalOutcome;
pub(crate) use message::{Outgoing, Sent};
pub(crate) use ownership::{Takeover, operate};

use crate::{
    cards::keep::{CardFeed, CardSource, CardWorker, CardsStatus},
    rates::Limiters,
    records::{self, State},
    refuse,
    shared::TeamShared,
    tasks::Load,
    waiting::BoardLine,
};
use build::{BuildFailure, BuiltMembers};
use member::{LiveMember, WhenWritten, delivery::Request};
use ownership::Checks;

pub(crate) type AnswerSender<T> = oneshot::Sender<Result<T, ToolError>>;

/// Time that the actor may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A message to a team.
pub(crate) enum Msg {
    /// Asks for the team's view.
    Look(oneshot::Sender<TeamView>),
    /// The messages in its members' inboxes, the oldest first.
    Inboxes(oneshot::Sender<Vec<Option<Vec<MessageId>>>>),
    /// The team, for a session that operates it.
    Operate(SessionId, AnswerSender<TeamView>),
    /// The check whether a session operates the team is done.
    Checked(SessionId, Result<(), ToolError>),
    /// A session has all members' workspaces: it operates the team from now on.
    Own(Takeover, AnswerSender<()>),
    /// A member sends a message.
    Send(Box<Outgoing>, AnswerSender<Sent>),
    /// Confirms that the receiver in this member's name has these items. Answers with their count,
    /// and the writes to wait for.
    Confirm(usize, BTreeSet<MessageId>, AnswerSender<(usize, [Option<WhenWritten>; 2])>),
    /// Somebody receives in a member's name.
    Receive(usize, Request),
    /// Reports an event of a member from outside of the mailbox.
    Member(usize, member::MemberEvent),
    /// Make the members.
    Build(CallCx, oneshot::Sender<Result<TeamView, NotBuilt>>),
    /// The members are made, and that is recorded; or not.
    Built(Result<BuiltMembers, BuildFailure>),
    /// Records that the team is going to be removed.
    WantEnd(AnswerSender<()>),
    /// A record is durable, or will not be.
    Recorded(Result<(), ToolError>, AnswerSender<()>),
    /// Removes the team.
    End(oneshot::Sender<RemovalOutcome>),
    /// Nothing is below the team: a removal that an earlier incarnation began is continued.
    GoOn,
    /// The outcome of a removal.
    Done(RemovalOutcome),
}

/// A team that was not made.
#[derive(Debug)]
pub(crate) struct NotBuilt {
    pub(crate) error: ToolError,
    /// True when everything of the team is removed again.
    pub(crate) gone: bool,
}

/// A team as others see it.
#[derive(Clone)]
pub(crate) struct TeamView {
    pub(crate) state: Arc<State>,
    /// Loads of the members, in the plan's order, as far as they are known; empty unless it is
    /// ready.
    pub(crate) loads: Vec<Option<Load>>,
    pub(crate) cards: CardsStatus,
}

/// The manager of teams, as a team knows it.
pub(crate) trait TeamManager: Send + Sync {
    /// Tells when nothing is below a team.
    ///
    /// # Errors
    /// When the manager is being started.
    fn when_childless(&self, id: TeamId, free: oneshot::Sender<()>)
    -> Result<(), ActorUnavailable>;

    /// A team is no more, and nobody else says so.
    fn gone(&self, id: TeamId);
}

/// The start arguments of an incarnation.
#[derive(Clone)]
pub(crate) struct Args {
    pub(crate) shared: Arc<TeamShared>,
    pub(crate) id: TeamId,
    pub(crate) manager: Arc<dyn TeamManager>,
    /// Planned just now: its first incarnation waits to be told to build.
    pub(crate) fresh: Arc<AtomicBool>,
}

/// A team; see the module.
pub(crate) struct TeamActor {
    me: Context<Msg>,
    args: Args,
    log: Log<State>,
    /// Durable state of the team; with its end, as soon as that is begun.
    state: Arc<State>,
    /// Members in the plan's order; empty unless the team was ready.
    members: Vec<LiveMember>,
    limiters: Limiters,
    checks: Checks,
    cards: CardsStatus,
    keeping: Option<CardWorker>,
    /// Planned just now, and not told to build yet.
    unbuilt: bool,
    /// Caller that waits for the team to be made.
    building: Option<oneshot::Sender<Result<TeamView, NotBuilt>>>,
    /// Callers that wait for the removal; `Some` while the team is being removed.
    ending: Option<Vec<oneshot::Sender<RemovalOutcome>>>,
    /// Outcome of the removal, once it is over.
    gone: Option<RemovalOutcome>,
    /// The error of a failed build, while it is being undone; `unmade` has the members of which
    /// nothing was made.
    failed: Option<ToolError>,
    unmade: BTreeSet<usize>,
}

impl Entity for TeamActor {
    type Msg = Msg;
    type Args = Args;

    async fn start(args: Args, me: Context<Msg>) -> Result<Self, Fault> {
        // Whatever comes of this one, the next is not told to build.
        let unbuilt = args.fresh.swap(false, SeqCst);
        let log = args.shared.teams.open(records::stream(args.id)).await?;
        let state = log.state().ok_or_else(|| Fault::new("the team is forgotten"))?;
        let (options, rates) = (&args.shared.options, args.shared.rates);
        let limiters = Limiters::new(options, rates, state.plan.members.len());
        let mut team = Self {
            me,
            log,
            state: Arc::new(state),
            members: Vec::new(),
            limiters,
            checks: Checks::new(),
            cards: CardsStatus::default(),
            keeping: None,
            unbuilt,
            building: None,
            ending: None,
            gone: None,
            failed: None,
            unmade: BTreeSet::new(),
            args,
        };
        if team.state.word() == "ready" {
            let (shared, id) = (team.args.shared.clone(), team.args.id);
            let numbers = 0..team.state.plan.members.len();
            let logs = numbers.map(|number| member::MemberLogs::open(&shared, id, number));
            let logs = try_join_all(logs).await?;
            let unavailable = logs.iter().find_map(member::MemberLogs::unavailable);
            if let Some(why) = unavailable {
                team.me.address.probe().set_error(why);
            }
            team.open_members(logs);
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
            Msg::Look(reply) => drop(reply.send(self.view())),
            Msg::Inboxes(reply) => {
                drop(reply.send(self.members.iter().map(LiveMember::messages).collect()));
            }
            Msg::Operate(session, reply) => self.operate(session, ownership::Call::View(reply)),
            Msg::Checked(session, outcome) => self.checked(session, &outcome),
            Msg::Own(take, reply) => self.own(take, reply),
            Msg::Send(message, reply) => {
                self.operate(message.session, ownership::Call::Send(message, reply));
            }
            Msg::Confirm(number, ids, reply) => {
                let member = self.member(number);
                drop(reply.send(member.and_then(|member| member.confirm(&ids))));
            }
            Msg::Receive(number, request) => match self.member(number) {
                Ok(member) => member.receive(request),
                Err(error) => drop(request.reply.send(Err(error))),
            },
            Msg::Member(number, event) => {
                if let Some(member) = self.members.get_mut(number) {
                    member.handle(event)?;
                }
            }
            Msg::Build(cx, reply) => self.build(cx, reply),
            Msg::Built(outcome) => self.built(outcome),
            Msg::WantEnd(reply) => self.want_end(reply),
            Msg::Recorded(outcome, reply) => {
                self.refresh();
                drop(reply.send(outcome));
            }
            Msg::End(reply) => self.end(Some(reply)),
            Msg::GoOn => self.end(None),
            Msg::Done(ended) => self.done(ended),
        }
        Ok(())
    }
}

impl TeamActor {
    fn view(&self) -> TeamView {
        TeamView {
            state: self.state.clone(),
            loads: self.members.iter().map(LiveMember::load).collect(),
            cards: self.cards.clone(),
        }
    }

    /// A member of a team that is ready.
    fn member(&mut self, number: usize) -> Result<&mut LiveMember, ToolError> {
        self.state.ready()?;
        let gone = || refuse::destroying(&self.state.plan.name);
        self.members.get_mut(number).ok_or_else(gone)
    }

    fn open_members(&mut self, logs: Vec<member::MemberLogs>) {
        let state = self.state.clone();
        let workspaces = state.workspaces.iter().flatten();
        let planned = state.plan.members.iter().zip(workspaces);
        let members = planned.zip(logs).enumerate().map(|(number, ((member, workspace), logs))| {
            let (team, shared) = (self.me.address.clone(), &self.args.shared);
            let line = BoardLine::new(
                shared.waiting.clone(),
                (self.args.id, number),
                shared.next_delivery(),
                state.owner,
                [state.plan.name.clone(), member.name.clone()],
            );
            LiveMember::new(member::Init {
                shared: self.args.shared.clone(),
                workers: self.me.workers.clone(),
                post: Arc::new(move |event| team.send(Msg::Member(number, event))),
                team: self.log.clone(),
                id: self.args.id,
                line,
                name: member.name.clone(),
                workspace: *workspace,
                logs,
            })
        });
        self.members = members.collect();
    }

    fn keep_cards(&mut self, begun: Option<CardFeed>) {
        let team = CardSource {
            shared: self.args.shared.clone(),
            state: self.state.clone(),
            loads: Box::new(self.loads()),
            status: self.cards.clone(),
        };
        let before = self.keeping.take();
        self.keeping = Some(CardWorker::begin(&self.me.workers, team, begun, before));
    }

    /// Asks for the members' loads, from beside the mailbox.
    fn loads(&self) -> impl Fn() -> BoxFuture<'static, Vec<Option<Load>>> + Send + Sync + 'static {
        let team = self.me.address.clone();
        move || {
            let team = team.clone();
            // While it is being started again nothing is known of its tasks.
            async move { team.ask(PATIENCE, Msg::Look).await.map_or_else(|_| Vec::new(), |v| v.loads) }
                .boxed()
        }
    }

    /// Takes over what is durable now.
    fn refresh(&mut self) {
        let Some(mut state) = self.log.state() else { return };
        state.ending |= self.ending.is_some();
        let changed = state.owner != self.state.owner;
        self.state = Arc::new(state);
        if self.state.ending {
            self.members.iter_mut().for_each(LiveMember::retire);
        }
        // From now on they are looked at in the new owner's name.
        if changed {
            let owner = self.state.owner;
            self.members.iter_mut().for_each(|member| member.hand_over(owner));
        }
        if changed && self.keeping.is_some() {
            self.keep_cards(None);
        }
        self.show();
    }

    fn show(&self) {
        self.me.address.probe().set_state(self.state.word());
    }

    /// Answers when something that was decided is durable, and the team is seen so.
    fn recorded(
        &self,
        decided: Result<impl Future<Output = Result<(), ToolError>> + Send + 'static, ToolError>,
        reply: AnswerSender<()>,
    ) {
        match decided {
            Ok(written) => {
                let team = self.me.address.clone();
                let _detached = self.me.workers.spawn(async move {
                    let outcome = written.await;
                    // A team that is gone is followed by one that opens its log.
                    let _ = team.send(Msg::Recorded(outcome, reply));
                });
            }
            // Whoever asked may have gone.
            Err(error) => drop(reply.send(Err(error))),
        }
    }
}
