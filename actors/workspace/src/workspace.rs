//! Actor of one workspace: decides what may happen; workers do it and record it in the log.
//!
//! # States
//!
//! Clients see a [`Phase`]. A handler checks each request against the table in [`crate::activity`]
//! and, if it is allowed, moves the phase at once: `Stopped` is `Starting` before anything is
//! started, so that the next request is judged by what is under way. The work runs beside the mailbox
//! and ends with [`WorkMsg::Settled`], which has its outcome. So `workspace_info` answers, and a kill
//! works, while a command of ten minutes runs.
//!
//! ```text
//!  request ──▶ Situation::on ──▶ phase, activity ──▶ worker ──▶ records ──▶ the world ──▶ records
//!               │ refused                            │           (intent)              (fact)
//!               ▼                                    └──────▶ Settled, Finished ──▶ phase, activity
//!             answer
//! ```
//!
//! # Changes of state
//!
//! - The **phase** moves by requests ([`Workspace::on`]), by the ends of their work, by the end of the
//!   machine's process, and by a host's disk that has no room ([`MachineMsg`](crate::messages::MachineMsg)).
//! - The **activity** begins in the handler of a request that has disk or machine to itself, and ends with
//!   [`WorkMsg::Finished`] or, for a machine that is taken up, with the phase `Starting`.
//! - The **durable state** moves with [`WorkMsg::Recorded`] alone: a handler sees one state all through.
//!   Workers commit through a [`WorkspaceHandle`] and go on when this actor has taken the state up.
//! - The **link's state** is watched by all who want to reach the guest; a child of this actor keeps it.
//! - Messages that need the guest of a parked machine are held back, wake it once, and are judged again
//!   after that (`parking/wake.rs`).
//!
//! # Parts
//!
//! [`Workspace`] has the parts of the state, each a type with methods of its own. A feature's handlers
//! are functions that take the workspace; work beside the mailbox takes its [`WorkspaceHandle`]. This
//! file alone knows all features: it hands each its messages, and settles what their work leaves.
//!
//! [`WorkspaceHandle`]: crate::handle::WorkspaceHandle
//!
//! # What can fail
//!
//! - A start, a stop or a recovery can leave a process of the machine. The workspace is `Crashed` then,
//!   the record of the machine stays, and the next start or stop ends that process first
//!   (`state/status.rs`).
//! - This actor can end at any place. Work that was ordered and must be brought to its end goes on, as
//!   it holds the actor's workers; the next incarnation begins with the log's state and makes true
//!   what was acknowledged (`workspace/recover.rs`).
//! - The daemon can end at any place. Then the intents that have no fact behind them are settled by the
//!   next start of the workspace, or undone.

mod recover;

use std::collections::BTreeMap;

use hivekeep_kernel::{
    ChildEnd, Context, Entity, Fault, ToolCall, ToolError, children::ChildOutcome, serve,
};
use serde_json::json;

use crate::{
    activity::Activity,
    commands::{self, env::environment, jobs},
    files,
    lifecycle::{lifetime, start, stop},
    machine::{attach, link},
    messages::{GuestAccess, GuestMsg, LifecycleMsg, LinkMsg, Msg, OwnerMsg, TaskMsg, WorkMsg},
    ownership,
    parking::{park, standstill, wake},
    phase::{Phase, Want},
    pool::claim,
    prepare::setup,
    snapshot::{merge, requests},
    state::{Args, Workspace},
    tools,
};

impl Entity for Workspace {
    type Msg = Msg;
    type Args = Args;

    async fn start(args: Args, me: Context<Msg>) -> Result<Self, Fault> {
        let ledger = args.shared.logs.begin(args.id).await;
        let ledger = ledger.map_err(|error| Fault::new(error.to_text()))?;
        let mut workspace = Self::new(me, args, ledger);
        recover::recover(&mut workspace);
        Ok(workspace)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        let message = match self.wants_guest(&message) {
            true => wake::hold_back(self, message),
            false => Some(message),
        };
        let Some(message) = message else { return Ok(()) };
        match message {
            Msg::Tool(call) => {
                let ops = self.ops.clone();
                serve::serve(self, tools::OF_WORKSPACE, &ops, call);
            }
            Msg::Work(news) => self.work(news)?,
            Msg::Lifecycle(ask) => self.lifecycle(ask),
            Msg::Machine(news) => attach::handle(self, news)?,
            Msg::Link(news) => self.link_news(news)?,
            Msg::Guest(GuestMsg::Enter(cx, reply)) => files::enter(self, &cx, reply),
            Msg::Guest(GuestMsg::Exec(request)) => commands::exec_for(self, *request),
            Msg::Guest(GuestMsg::FollowJobs) => jobs::follow(self)?,
            Msg::Tasks(ask) => task_ask(self, ask),
            Msg::Snapshots(ask) => requests::handle(self, ask),
            Msg::Merge(ask) => merge::handle(self, ask),
            Msg::Park(news) => park::handle(self, news),
            Msg::Lifetime(news) => lifetime::handle(self, news),
            Msg::Owner(OwnerMsg::Adopt(adopt)) => ownership::adopt(self, adopt),
            Msg::Owner(OwnerMsg::Adopted) => {
                self.status.adopting = false;
                wake::wake_if_wanted(self);
            }
            Msg::Pooled(ask) => claim::handle(self, ask),
            Msg::Prepare(ask) => setup::handle(self, ask),
        }
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        match self.children.handle_end(end)? {
            ChildOutcome::GaveUp { name, reason } => {
                self.handle.publish("actor.gave_up", json!({ "actor": name, "reason": reason }));
            }
            ChildOutcome::Gone { name, .. } => self.jobs.gone(&name),
            ChildOutcome::Restarting { .. } | ChildOutcome::Stranger => {}
        }
        Ok(())
    }
}

impl Workspace {
    /// Whether a message needs the guest, and comes from a session that may use it.
    fn wants_guest(&self, message: &Msg) -> bool {
        match message {
            Msg::Tool(ToolCall { tool, cx, .. }) => {
                tools::wants_guest(tool.name) && self.authorize_session(cx.session).is_ok()
            }
            Msg::Guest(GuestMsg::Enter(cx, _)) => self.authorize_session(cx.session).is_ok(),
            Msg::Guest(GuestMsg::Exec(request)) => self.authorize_session(request.session).is_ok(),
            Msg::Tasks(TaskMsg::Access { .. }) => true,
            _ => false,
        }
    }

    fn work(&mut self, news: WorkMsg) -> Result<(), Fault> {
        match news {
            WorkMsg::Recorded(taken_up) => {
                self.take_up();
                let _asker_gone = taken_up.send(());
            }
            WorkMsg::Finished(activity) => {
                self.status.finished(activity);
                wake::wake_if_wanted(self);
            }
            WorkMsg::Settled(phase, reason) => self.settle(phase, reason)?,
        }
        Ok(())
    }

    fn lifecycle(&mut self, ask: LifecycleMsg) {
        match ask {
            LifecycleMsg::Create(cx, reply) => start::create(self, *cx, reply),
            LifecycleMsg::Stop(done) => stop::stop_for_daemon(self, done),
            LifecycleMsg::Forget if self.status.phase == Phase::Failed => {
                stop::undo(self, "workspace.forgotten");
            }
            LifecycleMsg::Abandon if self.status.phase == Phase::Creating => {
                stop::undo(self, "workspace.create_undone");
            }
            LifecycleMsg::Forget | LifecycleMsg::Abandon => {}
            LifecycleMsg::RestartDue => start::restart_due(self),
            LifecycleMsg::Answers(process) => recover::answers(self, process),
        }
    }

    fn link_news(&mut self, news: LinkMsg) -> Result<(), Fault> {
        match news {
            LinkMsg::OwnToken => self.link.set_token(self.ledger.plan.token.clone()),
            LinkMsg::Event(event) => link::guest_event(self, event),
            LinkMsg::Changed(change) => {
                let answers = link::changed(self, change);
                if answers && self.status.phase == Phase::HostDiskFull {
                    self.goes_on()?;
                }
            }
        }
        Ok(())
    }

    /// Settles a machine whose guest answers again: the host's disk has room.
    fn goes_on(&mut self) -> Result<(), Fault> {
        self.settle(Phase::Running, None)?;
        self.handle.publish("workspace.goes_on", json!({}));
        if let Some(link) = self.link.up() {
            // The guest's clock stood still as well.
            link::relinked(self, link);
        }
        Ok(())
    }

    /// Ends a change of phase.
    fn settle(&mut self, phase: Phase, reason: Option<String>) -> Result<(), Fault> {
        // A machine may have ended between the last step of its start and now.
        self.status.finished(Activity::Reattaching);
        let stands = matches!(phase, Phase::Running | Phase::Paused | Phase::HostDiskFull);
        let gone = stands && self.machine.watched.is_none();
        self.status.reason = reason;
        // A workspace whose memory is on the disk is parked, not stopped.
        let phase = if phase == Phase::Stopped { self.at_rest() } else { phase };
        if gone {
            self.status.reason = Some("the machine ended right after its start".to_owned());
            self.set_phase(Phase::Crashed);
        } else {
            self.set_phase(phase);
        }
        standstill::settled(self);
        match self.status.phase {
            Phase::Running => jobs::follow(self)?,
            Phase::Crashed => attach::watch_what_is_left(self),
            // Most often there is nothing to merge.
            Phase::Stopped => drop(merge::begin_merging(self)),
            _ => {}
        }
        Ok(())
    }
}

fn task_ask(state: &mut Workspace, ask: TaskMsg) {
    match ask {
        TaskMsg::Access { env, reply } => {
            let _asker_gone = reply.send(guest_access(state, env));
        }
        TaskMsg::Cached { after, limit, reply } => {
            // A guest that may not be asked has no cached answers: the caller's own request
            // gets the error.
            let may_ask = state.on(Want::Guest).is_ok();
            let page = may_ask.then(|| state.tasks.cached(after, limit)).flatten();
            let _asker_gone = reply.send(page);
        }
        TaskMsg::Acknowledged { task_ids, reply } => {
            state.tasks.acknowledged(&task_ids);
            let _asker_gone = reply.send(guest_access(state, BTreeMap::new()));
        }
        TaskMsg::Hints(reply) => drop(reply.send(state.tasks.hints())),
    }
}

fn guest_access(
    state: &Workspace,
    env: BTreeMap<String, String>,
) -> Result<GuestAccess, ToolError> {
    state.on(Want::Guest)?;
    let env = environment(&state.ledger, None, env)?;
    Ok(GuestAccess { link_state: state.link.subscribe(), env })
}
