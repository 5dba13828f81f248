//! A durable saga: a run of steps, each recorded when it is done, resumed from the records.
//!
//! ```text
//!              ┌─────── what is due now ───────┐
//!              ▼                               │ its records are durable
//! resumed ─▶ steps, some at a time ─▶ one ended ┤
//!              │                               └─ nothing is due, nothing runs: the actor ends
//!              ├─ the log fails, or a step panics: the incarnation fails, its supervisor starts
//!              │  another, which goes on from the records
//!              ├─ cancelled: recorded first, then steps are told and come to their ends
//!              └─ the daemon is stopped in order: no step is begun any more, those that may be
//!                 interrupted are dropped; the next daemon goes on from the records
//! ```
//! A [`Saga`] says which steps are due in a state and takes them; [`SagaActor`] runs it as an actor,
//! and [`SagaHandle`] outlives its incarnations: who watches, cancels or records goes through it. A
//! step may be taken again when its daemon died before its record: it looks for what it made before
//! it makes it. While a saga is not finished it holds its session, as a call in flight does. Its actor is one
//! worker beside an empty mailbox.

mod handle;

use std::{
    fmt::Debug,
    future::{pending, ready},
    panic::AssertUnwindSafe,
    sync::Arc,
};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use hivekeep_kernel::{Context, Entity, Fault, SessionId};
use hivekeep_ports::SessionQuotas;
use tokio_util::sync::CancellationToken;

use crate::log::{LogError, Sourced};

pub use handle::{SagaHandle, SagaView};

/// The state of a saga, as its records add up to it.
pub trait SagaState: Sourced {
    /// The session that it holds; `None` when it is finished, though steps may be left.
    fn holds(&self) -> Option<SessionId>;

    /// Whether it is cancelled.
    fn is_cancelled(&self) -> bool;

    /// The record that cancels it; `None` when nothing is left that could be cut short.
    fn cancellation(&self) -> Option<Self::Record>;
}

/// An incarnation of a saga.
pub trait Saga: Sized + Send + Sync + 'static {
    /// State that the records add up to.
    type State: SagaState;
    /// A step.
    type Step: Copy + Eq + Debug + Send + Sync;
    /// State that is seen and never recorded; empty when an incarnation begins.
    type Live: Clone + Default + Send + Sync;
    /// Arguments of an incarnation, beside its records.
    type Args: Clone + Send + Sync + 'static;

    /// An incarnation that goes on from the records.
    fn resume(args: Self::Args, handle: SagaHandle<Self>) -> Self;

    /// Waits until nothing goes on that an incarnation before this one began.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Steps that can be taken now, the most urgent first, while these run. One that has left its
    /// records is not among them.
    fn due(state: &Self::State, running: &[Self::Step]) -> Vec<Self::Step>;

    /// Most steps at a time.
    fn parallel(state: &Self::State) -> usize;

    /// Whether an ordered stop of the daemon drops the step where it stands. Another is left to its end.
    fn interruptible(step: Self::Step) -> bool;

    /// Takes a step up to its last record. What goes wrong with the step itself is recorded.
    ///
    /// # Errors
    /// When nothing can be recorded.
    fn step(&self, step: Self::Step) -> impl Future<Output = Result<(), LogError>> + Send;
}

/// Arguments of each incarnation.
pub struct SagaArgs<G: Saga> {
    /// Arguments of [`Saga::resume`].
    pub args: G::Args,
    /// Handle that outlives the incarnations.
    pub handle: SagaHandle<G>,
    /// Where the saga's session is held.
    pub sessions: Arc<dyn SessionQuotas>,
    /// Fires when an ordered stop of the daemon begins.
    pub closing: CancellationToken,
}

impl<G: Saga> Clone for SagaArgs<G> {
    fn clone(&self) -> Self {
        Self {
            args: self.args.clone(),
            handle: self.handle.clone(),
            sessions: self.sessions.clone(),
            closing: self.closing.clone(),
        }
    }
}

/// Actor of a saga. Ends when nothing is left to do.
pub struct SagaActor<G: Saga> {
    me: Context<SagaEnded>,
    _saga: std::marker::PhantomData<fn() -> G>,
}

/// The end of the actor's work: nothing is left, or why it cannot go on.
pub struct SagaEnded(Result<(), String>);

impl<G: Saga> Entity for SagaActor<G> {
    type Msg = SagaEnded;
    type Args = SagaArgs<G>;

    async fn start(args: SagaArgs<G>, me: Context<SagaEnded>) -> Result<Self, Fault> {
        let SagaArgs { args, handle, sessions, closing } = args;
        if !handle.resume().await {
            return Err(Fault::new("nothing is recorded of it any more"));
        }
        let saga = G::resume(args, handle.clone());
        let run = Run { saga, handle, sessions, closing };
        let address = me.address.clone();
        let _detached = me.workers.spawn(async move {
            let outcome = AssertUnwindSafe(run.drive()).catch_unwind().await;
            let outcome = outcome.unwrap_or_else(|_| Err("its work panicked".to_owned()));
            // An actor that is gone is followed by one that goes on from the records.
            let _ = address.send(SagaEnded(outcome));
        });
        Ok(Self { me, _saga: std::marker::PhantomData })
    }

    fn handle(&mut self, SagaEnded(outcome): SagaEnded) -> Result<(), Fault> {
        outcome.map(|()| self.me.stop("it is over")).map_err(Fault)
    }
}

/// Scheduler of one incarnation: takes what is due, as much as may run at a time.
struct Run<G: Saga> {
    saga: G,
    handle: SagaHandle<G>,
    sessions: Arc<dyn SessionQuotas>,
    closing: CancellationToken,
}

impl<G: Saga> Run<G> {
    /// Everything that is left to do. Dropped with everything that it runs.
    ///
    /// # Errors
    /// In words, why this incarnation cannot go on.
    async fn drive(self) -> Result<(), String> {
        self.saga.ready().await;
        let mut hold = self.handle.state().holds().map(|session| self.sessions.hold(session));
        let (mut steps, mut running) = (FuturesUnordered::new(), Vec::new());
        loop {
            let state = self.handle.state();
            // A stop of the daemon waits for no saga.
            let closing = self.closing.is_cancelled();
            if closing || state.holds().is_none() {
                hold = None;
            }
            let due = G::due(&state, &running);
            if due.is_empty() && running.is_empty() {
                self.handle.settled().await;
                return Ok(());
            }
            let room = G::parallel(&state).max(1).saturating_sub(running.len());
            let begun = due.into_iter().filter(|step| !running.contains(step));
            for step in begun.take(if closing { 0 } else { room }).collect::<Vec<_>>() {
                running.push(step);
                steps.push(self.take(step));
            }
            if running.is_empty() {
                // The next daemon goes on.
                return pending().await;
            }
            tokio::select! {
                Some((step, outcome)) = steps.next() => {
                    outcome.map_err(|error| error.to_string())?;
                    running.retain(|other| *other != step);
                    if G::due(&self.handle.state(), &running).contains(&step) {
                        return Err(format!("the step {step:?} left no record"));
                    }
                }
                () = self.closing.cancelled(), if hold.is_some() => {}
            }
        }
    }

    /// Takes one step. What an ordered stop interrupts never ends: the step says nothing any more.
    async fn take(&self, step: G::Step) -> (G::Step, Result<(), LogError>) {
        let work = self.saga.step(step);
        let outcome = match G::interruptible(step) {
            true => match self.closing.run_until_cancelled(work).await {
                Some(outcome) => outcome,
                None => pending().await,
            },
            false => work.await,
        };
        (step, outcome)
    }
}

#[cfg(test)]
mod tests;
