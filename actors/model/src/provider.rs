//! Actor of one provider: its breaker, its queue and its health. Workers beside the mailbox do the requests.
//!
//! ```text
//! ask ─▶ breaker ─▶ room? ── yes ─▶ worker: attempts with growing pauses ─▶ answered
//!         │open       │ no                                                  │
//!         ▼           ▼                                                     ▼
//!       refused     queue, bounded, each with a deadline ◀── turn ──── breaker, health
//! ```

mod attempt;
mod health;
mod server;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use hivekeep_kernel::{Census, ChildEnd, Children, Context, Entity, Fault};
use hivekeep_ports::{ModelDelta, ModelToolCall, RelayPiece, RelayRequest};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use health::Breaker;
pub(crate) use health::{LastFailure, ProviderShared, usage};
pub(crate) use server::ServerState;

use crate::{
    backend::{Backend, ModelQuestion},
    failure::{FailureKind, WireFailure},
    transport::RelayedAnswer,
    wire::{WireEnd, WireVectors},
};

/// Whole answer to a question.
#[derive(Debug)]
pub(crate) struct AnsweredQuestion {
    pub(crate) text: String,
    pub(crate) calls: Vec<ModelToolCall>,
    pub(crate) end: WireEnd,
    pub(crate) attempts: u32,
    /// Earlier attempts that may have cost something.
    pub(crate) lost: u32,
}

/// Work of a request, with the channels of its answer: a question to answer, texts to embed, or a program's
/// request to pass on.
pub(crate) enum Work {
    Question {
        question: Box<ModelQuestion>,
        deltas: mpsc::Sender<ModelDelta>,
        reply: oneshot::Sender<Result<AnsweredQuestion, WireFailure>>,
    },
    Texts {
        model: String,
        texts: Vec<String>,
        reply: oneshot::Sender<Result<WireVectors, WireFailure>>,
    },
    Relay {
        request: Box<RelayRequest>,
        pieces: mpsc::Sender<RelayPiece>,
        /// With the bytes that were handed on.
        reply: oneshot::Sender<Result<(RelayedAnswer, usize), (WireFailure, usize)>>,
    },
}

/// A request to a provider with its deadline.
pub(crate) struct ProviderJob {
    pub(crate) work: Work,
    pub(crate) deadline: Instant,
}

impl ProviderJob {
    /// Whether nobody waits for the answer.
    pub(crate) fn gone(&self) -> bool {
        match &self.work {
            Work::Question { deltas, reply, .. } => deltas.is_closed() || reply.is_closed(),
            Work::Texts { reply, .. } => reply.is_closed(),
            Work::Relay { pieces, reply, .. } => pieces.is_closed() || reply.is_closed(),
        }
    }

    /// Answers with a failure.
    pub(crate) fn refuse(self, failure: WireFailure) {
        // The asker may have gone.
        match self.work {
            Work::Question { reply, .. } => drop(reply.send(Err(failure))),
            Work::Texts { reply, .. } => drop(reply.send(Err(failure))),
            Work::Relay { reply, .. } => drop(reply.send(Err((failure, 0)))),
        }
    }
}

/// Message to a provider.
pub(crate) enum Msg {
    Ask(Box<ProviderJob>),
    /// A worker ended.
    Ended(Outcome),
    /// The time limit of a waiting request may be over.
    Sweep,
}

/// Outcome of a request, as far as it concerns the provider.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Whether the provider works; `None` when the request does not tell.
    pub(crate) works: Option<bool>,
    pub(crate) failure: Option<LastFailure>,
    pub(crate) first_piece: Option<Duration>,
}

/// Start arguments.
#[derive(Clone)]
pub(crate) struct Args {
    pub(crate) shared: Arc<ProviderShared>,
    pub(crate) census: Census,
    pub(crate) path: String,
}

/// Actor of one provider.
pub(crate) struct Provider {
    me: Context<Msg>,
    shared: Arc<ProviderShared>,
    backend: Arc<Backend>,
    breaker: Breaker,
    running: usize,
    waiting: VecDeque<(Instant, Box<ProviderJob>)>,
    children: Children,
}

impl Entity for Provider {
    type Msg = Msg;
    type Args = Args;

    async fn start(args: Args, me: Context<Msg>) -> Result<Self, Fault> {
        let Args { shared, census, path } = args;
        let options = &shared.options;
        let breaker =
            Breaker::new(options.breaker_failures, Duration::from_secs(options.breaker_secs));
        let mut children = Children::new(&path, census, me.cell.clone());
        server::start(&mut children, &shared)?;
        let seen = shared.clone();
        me.address.probe().set_detail(move || Some(seen.detail()));
        let backend = Arc::new(Backend::new(options).await);
        shared.publish(backend.clone());
        let waiting = VecDeque::new();
        let actor = Self { me, shared, backend, breaker, running: 0, waiting, children };
        actor.tell(&Outcome::default());
        Ok(actor)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Ask(job) => {
                self.ask(job);
                self.tell(&Outcome::default());
            }
            Msg::Ended(outcome) => {
                self.running = self.running.saturating_sub(1);
                self.breaker.ended(outcome.works, Instant::now());
                self.next();
                self.tell(&outcome);
            }
            Msg::Sweep => {
                self.sweep();
                self.tell(&Outcome::default());
            }
        }
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        self.children.handle_end(end).map(drop)
    }
}

impl Provider {
    fn ask(&mut self, job: Box<ProviderJob>) {
        if self.running < self.shared.options.at_a_time() {
            return self.begin(job);
        }
        self.waiting.retain(|(_, waits)| !waits.gone());
        if self.waiting.len() >= self.shared.options.queue {
            let why = format!("{} requests wait for it already", self.waiting.len());
            return job.refuse(WireFailure::new(FailureKind::Busy, why));
        }
        let limit = Duration::from_secs(self.shared.options.queue_secs);
        let until = job.deadline.min(Instant::now() + limit);
        self.waiting.push_back((until, job));
        let address = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            tokio::time::sleep_until(until).await;
            // If the actor is gone, nobody waits.
            let _ = address.send(Msg::Sweep);
        });
    }

    /// Begins a request, if the breaker lets it through.
    fn begin(&mut self, job: Box<ProviderJob>) {
        if let Err(wait) = self.breaker.admit(Instant::now()) {
            let last = self.shared.health().last_failure.map(|last| last.message);
            let why = format!(
                "it failed {} times in a row and is left alone for a while; last: {}",
                self.shared.options.breaker_failures,
                last.unwrap_or_default(),
            );
            let mut failure = WireFailure::new(FailureKind::Unavailable, why);
            failure.retry_after = Some(wait.max(Duration::from_millis(100)));
            return job.refuse(failure);
        }
        self.running += 1;
        let work = attempt::run(
            self.shared.clone(),
            self.backend.clone(),
            job,
            attempt::EndNotice::new(self.me.address.clone()),
        );
        let _detached = self.me.workers.spawn(work);
    }

    /// Begins waiting requests as long as there is room.
    fn next(&mut self) {
        while self.running < self.shared.options.at_a_time() {
            let Some((_, job)) = self.waiting.pop_front() else { return };
            if !job.gone() {
                self.begin(job);
            }
        }
    }

    fn sweep(&mut self) {
        let now = Instant::now();
        let waiting = std::mem::take(&mut self.waiting);
        for (until, job) in waiting {
            if job.gone() {
                continue;
            }
            if until > now {
                self.waiting.push_back((until, job));
                continue;
            }
            let why = "its turn did not come in time";
            job.refuse(WireFailure::new(FailureKind::Busy, why));
        }
    }

    fn tell(&self, outcome: &Outcome) {
        let closed_at = self.breaker.open_for(Instant::now());
        self.shared.tell(self.running, self.waiting.len(), closed_at, outcome);
    }
}
