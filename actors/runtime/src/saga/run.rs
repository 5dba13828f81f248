//! The scheduler of one incarnation: takes what is due, as much as may run at a time.

use std::{future::pending, sync::Arc};

use futures::{StreamExt, stream::FuturesUnordered};
use hivekeep_kernel::ports::SessionQuotas;
use tokio_util::sync::CancellationToken;

use super::{Saga, SagaHandle, SagaState};
use crate::log::LogError;

pub(super) struct Run<G: Saga> {
    pub(super) saga: G,
    pub(super) handle: SagaHandle<G>,
    pub(super) sessions: Arc<dyn SessionQuotas>,
    pub(super) closing: CancellationToken,
}

impl<G: Saga> Run<G> {
    /// Everything that is left to do. Dropped with everything that it runs.
    ///
    /// # Errors
    /// In words, why this incarnation cannot go on.
    pub(super) async fn drive(self) -> Result<(), String> {
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
