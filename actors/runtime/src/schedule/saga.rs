//! Incarnation of a schedule.

use std::{future::pending, sync::Arc};

use chrono::Utc;
use tokio_util::sync::CancellationToken;

use super::{ScheduleRecord, ScheduleState, Scheduled, TimeOutcome};
use crate::{
    log::LogError,
    saga::{Saga, SagaHandle},
};

/// Incarnation of a schedule, whose only step does what is to be done at the time that is due.
pub struct ScheduleSaga<S: Scheduled> {
    host: Arc<S::Host>,
    /// Fires when an ordered stop of the daemon begins.
    closing: CancellationToken,
    handle: SagaHandle<Self>,
}

impl<S: Scheduled> Saga for ScheduleSaga<S> {
    type State = ScheduleState<S>;
    type Step = ();
    type Live = ();
    type Args = (Arc<S::Host>, CancellationToken);

    fn resume((host, closing): Self::Args, handle: SagaHandle<Self>) -> Self {
        Self { host, closing, handle }
    }

    fn due(state: &ScheduleState<S>, _: &[()]) -> Vec<()> {
        state.due.iter().map(|_| ()).collect()
    }

    fn parallel(_: &ScheduleState<S>) -> usize {
        1
    }

    /// A run that was begun meanwhile is found by its id.
    fn interruptible((): ()) -> bool {
        true
    }

    async fn step(&self, (): ()) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some(due) = state.due else { return Ok(()) };
        let begun = state.agent.begin(&self.host, &due);
        let Some(outcome) = self.handle.cancelled().run_until_cancelled(begun).await else {
            return Ok(());
        };
        if self.closing.is_cancelled() && matches!(outcome, TimeOutcome::Failed { .. }) {
            return pending().await;
        }
        self.handle.record(ScheduleRecord::Done { due, outcome, at: Utc::now() }).await
    }
}
