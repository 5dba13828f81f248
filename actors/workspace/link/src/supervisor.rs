//! Supervisor actor that keeps one link up, with reconnects.
//!
//! ```text
//!            ┌────────── Lost, after a pause ──────────┐
//!            ▼                                         │
//!       Connecting ── Connected(Ok) ──► Up ⇄ (silent, answers)
//!        │   ▲  └──── Connected(refused) ──► Refused
//!        └───┘ Connected(unreachable), after a pause   │
//!            ▲──────────────── reconnect ──────────────┘
//! ```
//! No handler waits: connecting and watching run in tasks that post back to the mailbox, with the
//! round they belong to, so that late posts can be dropped.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use hivekeep_protocol::GuestWelcome;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::call::CallTerms;
use crate::carrier::Carrier;
use crate::error::{LinkDown, LinkError};
use crate::options::LinkSupervisorOptions;
use crate::{Link, LinkToken};

/// Change of the link's state.
#[derive(Debug)]
pub enum LinkChange {
    /// The link is up; calls may be made on it.
    Up {
        /// Link to use.
        link: Link,
        /// Welcome of the guest.
        welcome: GuestWelcome,
    },
    /// The link was up and is lost; it is being made again.
    Down {
        /// Reason, as far as this end of the link can tell.
        reason: LinkDown,
    },
    /// A whole connecting phase passed without a guest; the next one follows.
    Unreachable {
        /// Last failure.
        error: LinkError,
    },
    /// The guest (or the socket's owner) refuses. Nothing more is tried until
    /// [`LinkSupervisorMsg::reconnect`].
    Refused {
        /// Refusal of the guest, or the wrong owner of the socket.
        error: LinkError,
    },
    /// The link is up and the guest answers no pings.
    Unresponsive,
    /// The guest answers again.
    Responsive,
}

/// Arguments of a supervisor.
pub struct LinkSupervisorArgs {
    /// Carrier to the guest: [`super::Endpoint::carrier`].
    pub carrier: Arc<dyn Carrier>,
    /// Token of the machine, which changes when a copy of another machine's memory gets its own
    /// identity.
    pub token: Receiver<LinkToken>,
    /// Options of the link.
    pub options: LinkSupervisorOptions,
    /// Callback for each change, called in order from the supervisor's mailbox. Must not block: it
    /// posts to its owner.
    pub on_change: Arc<dyn Fn(LinkChange) + Send + Sync>,
}

/// Message to a supervisor. Stopping the actor closes the link.
#[derive(Debug)]
pub struct LinkSupervisorMsg(Msg);

impl LinkSupervisorMsg {
    /// Connects again after a refusal. Has no effect otherwise.
    pub fn reconnect() -> Self {
        Self(Msg::Reconnect)
    }
}

#[derive(Debug)]
enum Msg {
    Reconnect,
    Connected { round: u64, outcome: Result<(Link, GuestWelcome), LinkError> },
    Lost { round: u64, reason: LinkDown },
    Silent { round: u64 },
    Answers { round: u64 },
    WorkerDied,
}

/// Actor; its state is made from [`LinkSupervisorArgs`].
#[derive(Debug)]
pub struct LinkSupervisor;

/// State of a [`LinkSupervisor`].
pub struct LinkSupervisorState {
    args: LinkSupervisorArgs,
    phase: Phase,
    /// Count of connecting phases; posts of an older one are dropped.
    round: u64,
    pause: Duration,
    /// Guard that ends the tasks with the actor, however it ends.
    stop: CancellationToken,
}

enum Phase {
    Connecting,
    Up { link: Link, since: Instant },
    Refused,
}

impl Drop for LinkSupervisorState {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Phase::Up { link, .. } = &self.phase {
            link.close(LinkDown::Closed);
        }
    }
}

impl Actor for LinkSupervisor {
    type Msg = LinkSupervisorMsg;
    type State = LinkSupervisorState;
    type Arguments = LinkSupervisorArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<LinkSupervisorMsg>,
        args: LinkSupervisorArgs,
    ) -> Result<LinkSupervisorState, ActorProcessingErr> {
        let pause = Duration::from_millis(args.options.reconnect_first_ms);
        let stop = CancellationToken::new();
        let mut keeping =
            LinkSupervisorState { args, phase: Phase::Connecting, round: 0, pause, stop };
        keeping.connect(&myself, Duration::ZERO);
        Ok(keeping)
    }

    async fn handle(
        &self,
        myself: ActorRef<LinkSupervisorMsg>,
        LinkSupervisorMsg(message): LinkSupervisorMsg,
        keeping: &mut LinkSupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let current = keeping.round;
        match message {
            Msg::Connected { round, outcome } if round == current => {
                keeping.connected(&myself, outcome);
            }
            Msg::Lost { round, reason } if round == current => keeping.lost(&myself, reason),
            Msg::Silent { round } if round == current => keeping.tell(LinkChange::Unresponsive),
            Msg::Answers { round } if round == current => keeping.tell(LinkChange::Responsive),
            Msg::Reconnect if matches!(keeping.phase, Phase::Refused) => {
                keeping.connect(&myself, Duration::ZERO);
            }
            Msg::WorkerDied => return Err("a task of the link supervisor panicked".into()),
            _ => {}
        }
        Ok(())
    }
}

impl LinkSupervisorState {
    fn tell(&self, change: LinkChange) {
        (self.args.on_change)(change);
    }

    fn connect(&mut self, myself: &ActorRef<LinkSupervisorMsg>, after: Duration) {
        self.phase = Phase::Connecting;
        self.round += 1;
        let (round, stop) = (self.round, self.stop.clone());
        let (carrier, token) = (self.args.carrier.clone(), self.args.token.borrow().clone());
        let options = self.args.options.link.clone();
        self.work(myself, async move {
            sleep(after).await;
            let outcome = Link::connect_over(&*carrier, &token, &options, &stop).await;
            Msg::Connected { round, outcome }
        });
    }

    fn connected(
        &mut self,
        myself: &ActorRef<LinkSupervisorMsg>,
        outcome: Result<(Link, GuestWelcome), LinkError>,
    ) {
        match outcome {
            Ok((link, welcome)) => {
                self.phase = Phase::Up { link: link.clone(), since: Instant::now() };
                let watch = Watch {
                    link: link.clone(),
                    options: self.args.options.clone(),
                    has_connections: self.args.carrier.has_connections(),
                    round: self.round,
                    supervisor: myself.clone(),
                };
                self.tell(LinkChange::Up { link, welcome });
                self.work(myself, watch.run());
            }
            Err(error @ (LinkError::Refused(_) | LinkError::WrongPeer { .. })) => {
                self.phase = Phase::Refused;
                self.tell(LinkChange::Refused { error });
            }
            Err(error) => {
                self.tell(LinkChange::Unreachable { error });
                let pause = self.next_pause();
                self.connect(myself, pause);
            }
        }
    }

    fn lost(&mut self, myself: &ActorRef<LinkSupervisorMsg>, reason: LinkDown) {
        let Phase::Up { since, .. } = &self.phase else { return };
        if since.elapsed() >= Duration::from_millis(self.args.options.stable_after_ms) {
            self.pause = Duration::from_millis(self.args.options.reconnect_first_ms);
        }
        self.tell(LinkChange::Down { reason });
        let pause = self.next_pause();
        self.connect(myself, pause);
    }

    /// Pause to make now; the next one is twice as long.
    fn next_pause(&mut self) -> Duration {
        let longest = Duration::from_millis(self.args.options.reconnect_max_ms);
        // At least one millisecond: a link that is lost at once must not become a hot loop.
        let pause =
            self.pause.clamp(Duration::from_millis(1), longest.max(Duration::from_millis(1)));
        self.pause = pause * 2;
        pause
    }

    /// Runs a task that ends with a post to the mailbox, or with the actor.
    fn work(
        &self,
        myself: &ActorRef<LinkSupervisorMsg>,
        task: impl Future<Output = Msg> + Send + 'static,
    ) {
        let (stop, myself) = (self.stop.clone(), myself.clone());
        tokio::spawn(async move {
            let message = tokio::select! {
                biased;
                _ = stop.cancelled() => return,
                outcome = AssertUnwindSafe(task).catch_unwind() => outcome.unwrap_or(Msg::WorkerDied),
            };
            // An error says that the actor has gone, and the message with it.
            let _ = myself.cast(LinkSupervisorMsg(message));
        });
    }
}

/// Watches one link to its end and pings the guest when it is silent.
struct Watch {
    link: Link,
    options: LinkSupervisorOptions,
    has_connections: bool,
    round: u64,
    supervisor: ActorRef<LinkSupervisorMsg>,
}

impl Watch {
    async fn run(self) -> Msg {
        let round = self.round;
        let reason = tokio::select! {
            biased;
            reason = self.link.closed() => reason,
            _ = self.ping_while_up() => self.link.closed().await,
        };
        Msg::Lost { round, reason }
    }

    async fn ping_while_up(&self) {
        let mut missed = 0;
        while self.link.is_up() {
            let silent_ms = self.link.silent_ms();
            if silent_ms < self.options.ping_idle_ms {
                self.answered(&mut missed);
                sleep(Duration::from_millis(self.options.ping_idle_ms - silent_ms)).await;
                continue;
            }
            let time = Duration::from_millis(self.options.ping_timeout_ms.max(1));
            let pong = self.link.ping(CallTerms::at_most(time)).await;
            // Any frame received meanwhile is as good as the pong.
            if pong.is_ok() || self.link.silent_ms() < self.options.ping_timeout_ms {
                self.answered(&mut missed);
                continue;
            }
            missed += 1;
            if missed == 1 {
                self.post(Msg::Silent { round: self.round });
            }
            if !self.has_connections && missed >= self.options.resync_after_pings {
                self.link.close(LinkDown::Unresponsive);
            }
        }
    }

    fn answered(&self, missed: &mut u32) {
        if std::mem::take(missed) > 0 {
            self.post(Msg::Answers { round: self.round });
        }
    }

    fn post(&self, message: Msg) {
        // An error says that the actor has gone; then this task ends too.
        let _ = self.supervisor.cast(LinkSupervisorMsg(message));
    }
}
