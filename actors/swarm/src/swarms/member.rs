//! An entry of the manager for one swarm.

use hivekeep_kernel::{SessionId, SwarmId};
use hivekeep_runtime::{
    collection::CollectionMember,
    saga::{SagaActor, SagaHandle},
};

use crate::{
    swarm::{
        SwarmSaga,
        records::SwarmPlan,
        report,
        state::{FinishedSwarm, SwarmState},
    },
    tools::{SwarmResult, SwarmRow},
};

/// The state of a swarm that waits for the daemon's next start.
const GIVEN_UP: &str = "given_up";

/// A swarm as its manager has it.
pub(super) enum SwarmMember {
    /// Being written down.
    Planned { owner: SessionId, row: SwarmRow },
    /// A saga, also while it removes what its end had to leave, or is given up.
    Saga(SagaHandle<SwarmSaga>),
    /// Only its result is left, in the journal: so many bytes.
    Finished { owner: SessionId, row: SwarmRow, bytes: usize },
}

impl CollectionMember for SwarmMember {
    type Id = SwarmId;
    type Actor = SagaActor<SwarmSaga>;
    const KIND: &'static str = "swarm";

    fn takes_place(&self) -> bool {
        match self {
            Self::Planned { .. } => true,
            Self::Saga(handle) => handle.view(|view| matches!(view.state, SwarmState::Running(_))),
            Self::Finished { .. } => false,
        }
    }
}

impl SwarmMember {
    pub(super) fn planned(plan: &SwarmPlan) -> Self {
        let row = SwarmRow {
            swarm_id: plan.id,
            state: "planned".to_owned(),
            owned: true,
            summary: None,
            started_at: plan.at,
            ended_at: None,
        };
        Self::Planned { owner: plan.owner, row }
    }

    pub(super) fn finished(over: &FinishedSwarm) -> Self {
        let bytes = over.snapshot().map_or(0, |bytes| bytes.len());
        Self::Finished { owner: over.owner, row: report::row_of(&over.result), bytes }
    }

    pub(super) fn owner(&self) -> SessionId {
        match self {
            Self::Planned { owner, .. } | Self::Finished { owner, .. } => *owner,
            Self::Saga(handle) => handle.view(|view| view.state.owner()),
        }
    }

    pub(super) fn row(&self, session: SessionId) -> SwarmRow {
        let row = match self {
            Self::Planned { row, .. } | Self::Finished { row, .. } => row.clone(),
            Self::Saga(handle) => {
                let given_up = handle.view(|view| view.given_up.is_some());
                let row = handle.view(report::row);
                if given_up { SwarmRow { state: GIVEN_UP.to_owned(), ..row } } else { row }
            }
        };
        SwarmRow { owned: self.owner() == session, ..row }
    }
}

/// The result so far, which says why if the swarm is given up.
pub(super) fn result(handle: &SagaHandle<SwarmSaga>) -> SwarmResult {
    handle.view(|view| match (&view.given_up, report::result(view)) {
        (None, result) => result,
        (reason, result) => {
            SwarmResult { state: GIVEN_UP.to_owned(), gave_up: reason.clone(), ..result }
        }
    })
}
