//! Progress of a call, as notifications to the client that asked for it.

use hivekeep_kernel::{Progress, ProgressUpdate};
use rmcp::{
    RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::{Peer, RequestContext},
};
use tokio::sync::mpsc;

/// Updates that wait for the client; more are lost.
const WAITING: usize = 32;

/// The way of one call's progress.
pub(super) struct Relay {
    outlet: Progress,
    updates: mpsc::Receiver<ProgressUpdate>,
    token: ProgressToken,
    peer: Peer<RoleServer>,
    last: f64,
}

impl Relay {
    /// The relay of a request that asks for progress.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        let token = context.meta.get_progress_token()?;
        let (outlet, updates) = Progress::channel(WAITING);
        Some(Self { outlet, updates, token, peer: context.peer.clone(), last: f64::NEG_INFINITY })
    }

    /// The sink of the call's progress.
    pub(super) fn outlet(&self) -> Progress {
        self.outlet.clone()
    }

    /// Drives the call and tells the client how far it is; all of it before the
    /// answer.
    pub(super) async fn while_running<T>(mut self, call: impl Future<Output = T>) -> T {
        let mut call = std::pin::pin!(call);
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut call => break outcome,
                Some(update) = self.updates.recv() => self.tell(update).await,
            }
        };
        while let Ok(update) = self.updates.try_recv() {
            self.tell(update).await;
        }
        outcome
    }

    async fn tell(&mut self, update: ProgressUpdate) {
        // The protocol wants each value above the one before.
        if update.done <= self.last {
            return;
        }
        self.last = update.done;
        let mut told = ProgressNotificationParam::new(self.token.clone(), update.done);
        told.total = update.total;
        if !update.message.is_empty() {
            told.message = Some(update.message);
        }
        // A client that is gone hears nothing; its call is cancelled elsewhere.
        let _gone = self.peer.notify_progress(told).await;
    }
}
