//! `swarm_status` and `swarm_cancel`.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, Reply, SessionId, SwarmId, ToolError};

use super::{GIVEN_UP, Place, Swarms};
use crate::{
    refuse,
    shared::SwarmShared,
    swarm::{
        self,
        records::{self, Record, SwarmState},
    },
    tools::{SwarmCancel, SwarmCancelled, SwarmResult, SwarmRow, SwarmStatus, SwarmStatusResult},
};

/// Longest wait of one call.
const LONGEST_WAIT_SECS: u64 = 300;
/// For a cancellation to be written down.
const CANCELLING: Duration = Duration::from_secs(60);

impl Swarms {
    pub(crate) fn status(
        &mut self,
        cx: &CallCx,
        input: &SwarmStatus,
    ) -> Result<Reply<SwarmStatusResult>, ToolError> {
        let wait_secs = input.wait_secs.unwrap_or(0);
        if wait_secs > LONGEST_WAIT_SECS {
            let message = format!("wait_secs is at most {LONGEST_WAIT_SECS}");
            return Err(ToolError::invalid(message));
        }
        // Those that grew too old since anything else happened.
        self.prune();
        let Some(id) = input.swarm_id else {
            let rows: Vec<_> = self
                .swarms
                .values()
                .map(|entry| entry.place.row(entry.owner == cx.session))
                .collect();
            let (count, swarms) = (Some(rows.len()), Some(rows));
            return Ok(Reply::Now(SwarmStatusResult { swarms, count, swarm: None }));
        };
        let entry = self.find(id)?;
        let (shared, cx, owner) = (self.shared.clone(), cx.clone(), entry.owner);
        let (going, down) = match &entry.place {
            Place::Planned(_) => return Err(planned(id)),
            Place::Going(going) => (Some(going.view.clone()), None),
            Place::Over(_) => (None, None),
            Place::Down(_, reason) => (None, Some(reason.clone())),
        };
        let waiting = match wait_secs {
            0 => None,
            _ => Some(shared.waiters.enter(id, cx.session)?),
        };
        Ok(Reply::later(async move {
            authorize(&shared, &cx, owner, id).await?;
            if waiting.is_some() {
                // Bounded by what was just taken, and not by the admission of all swarms.
                cx.slot.give_back();
            }
            let result = match going {
                None => standing(kept(&shared, id).await?, down),
                Some(mut view) => {
                    let over = view.wait_for(|story| matches!(story, SwarmState::Over(_)));
                    let wait = Duration::from_secs(wait_secs);
                    let waited =
                        cx.guard(async { Ok(tokio::time::timeout(wait, over).await.is_ok()) });
                    waited.await?;
                    view.borrow().result()
                }
            };
            Ok(SwarmStatusResult { swarm: Some(result), ..SwarmStatusResult::default() })
        }))
    }

    pub(crate) fn cancel(
        &mut self,
        cx: &CallCx,
        input: &SwarmCancel,
    ) -> Result<Reply<SwarmCancelled>, ToolError> {
        let swarm_id = input.swarm_id;
        let entry = self.find(swarm_id)?;
        let (shared, cx, owner) = (self.shared.clone(), cx.clone(), entry.owner);
        let going = match &entry.place {
            Place::Planned(_) => return Err(planned(swarm_id)),
            Place::Going(going) => Some(going.clone()),
            Place::Over(_) | Place::Down(..) => None,
        };
        let down = matches!(&entry.place, Place::Down(..));
        Ok(Reply::later(async move {
            authorize(&shared, &cx, owner, swarm_id).await?;
            let cancelled = match going {
                // Of one that has just ended nobody is there to ask.
                Some(going) if !matches!(&*going.view.borrow(), SwarmState::Going(_)) => false,
                Some(going) => going.address.ask(CANCELLING, swarm::Msg::Cancel).await??,
                None => down && cancel_down(&shared, swarm_id).await?,
            };
            Ok(SwarmCancelled { swarm_id, cancelled })
        }))
    }
}

impl Place {
    fn row(&self, owned: bool) -> SwarmRow {
        let row = match self {
            Self::Planned(row) | Self::Over(row) | Self::Down(row, _) => row.clone(),
            Self::Going(going) => {
                let story = going.view.borrow();
                story.row(story.owner())
            }
        };
        SwarmRow { owned, ..row }
    }
}

/// Of a session that is over anybody may see what came of its swarms, and end them.
async fn authorize(
    shared: &SwarmShared,
    cx: &CallCx,
    owner: SessionId,
    id: SwarmId,
) -> Result<(), ToolError> {
    if owner == cx.session || shared.sessions.standing(owner).await.ended {
        return Ok(());
    }
    let message = format!("the swarm `{id}` belongs to another session");
    Err(ToolError::new(Layer::Policy, codes::NOT_OWNER, message))
}

fn planned(id: SwarmId) -> ToolError {
    let message = format!("the swarm `{id}` is being written down");
    ToolError::new(Layer::Actor, codes::SWARM_STATE, message)
        .retry_after(Duration::from_millis(200))
}

/// A swarm without an actor.
fn standing(story: SwarmState, down: Option<String>) -> SwarmResult {
    let result = story.result();
    match down {
        None => result,
        Some(_) => SwarmResult { state: GIVEN_UP.to_owned(), gave_up: down, ..result },
    }
}

/// Of a swarm that was given up the next start of the daemon reads that it is to end.
async fn cancel_down(shared: &SwarmShared, id: SwarmId) -> Result<bool, ToolError> {
    if matches!(kept(shared, id).await?, SwarmState::Going(state) if !state.settled()) {
        let pieces = records::encode(&Record::Cancelled);
        let written = shared.journal.append(&records::stream(id), pieces).await;
        return written.map(|_| true).map_err(|error| refuse::store(&error));
    }
    Ok(false)
}

async fn kept(shared: &SwarmShared, id: SwarmId) -> Result<SwarmState, ToolError> {
    let (journal, stream) = (shared.journal.clone(), records::stream(id));
    let loaded = tokio::task::spawn_blocking(move || records::load(&journal, &stream)).await;
    let loaded = loaded.map_err(|error| ToolError::internal(error.to_string()))?;
    match loaded.map_err(ToolError::internal)? {
        Some((story, _)) => Ok(story),
        None => Err(refuse::no_swarm(id)),
    }
}
