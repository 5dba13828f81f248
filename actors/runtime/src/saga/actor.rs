//! The actor of a saga: one worker beside an empty mailbox.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use hivekeep_kernel::{Context, Entity, Fault, ports::SessionQuotas};
use tokio_util::sync::CancellationToken;

use super::{Saga, SagaHandle, run::Run};

/// Seed of each incarnation.
pub struct SagaSeed<G: Saga> {
    /// Arguments of [`Saga::resume`].
    pub args: G::Args,
    /// Handle that outlives the incarnations.
    pub handle: SagaHandle<G>,
    /// Where the saga's session is held.
    pub sessions: Arc<dyn SessionQuotas>,
    /// Fires when an ordered stop of the daemon begins.
    pub closing: CancellationToken,
}

impl<G: Saga> Clone for SagaSeed<G> {
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
    type Seed = SagaSeed<G>;

    async fn start(seed: SagaSeed<G>, me: Context<SagaEnded>) -> Result<Self, Fault> {
        let SagaSeed { args, handle, sessions, closing } = seed;
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
