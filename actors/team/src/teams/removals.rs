//! Removals of teams: who keeps a team closed, which removals run, and which teams wait for those
//! below them.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use hivekeep_kernel::{TeamId, ToolError, workers::Workers};
use tokio::sync::{oneshot, watch};

use crate::{api::TeamResult, refuse};

/// Calls that wait for one removal. They hold no place among the calls that teams work on, so they
/// are bounded here.
const MOST_WAITING: usize = 16;

type Outcome = Result<TeamResult, ToolError>;

/// Table of the removals that run, and of the calls that wait.
#[derive(Default)]
pub(crate) struct Removals {
    /// Calls and records that keep a team closed.
    closers: HashMap<TeamId, usize>,
    /// The last removal of each topmost team.
    last: HashMap<TeamId, Arc<watch::Sender<Option<Outcome>>>>,
    waiting: Vec<(TeamId, oneshot::Sender<()>)>,
}

/// A removal, for one call that waits for it. Dropping this does not stop the removal.
pub(crate) struct Removal(watch::Receiver<Option<Outcome>>);

impl Removal {
    pub(crate) async fn outcome(mut self) -> Outcome {
        match self.0.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().expect("it was waited for"),
            Err(_) => Err(ToolError::internal("the manager of teams ended; the removal goes on")),
        }
    }
}

impl Removals {
    /// Marks these teams as closed, once more for each caller.
    pub(crate) fn close(&mut self, ids: &[TeamId]) {
        for id in ids {
            *self.closers.entry(*id).or_default() += 1;
        }
    }

    /// Withdraws a caller's [`Self::close`]. Teams that nobody else wants removed are open again.
    pub(crate) fn reopen(&mut self, ids: Vec<TeamId>) {
        for id in ids {
            let Some(closers) = self.closers.get_mut(&id) else { continue };
            *closers -= 1;
            if *closers == 0 {
                self.closers.remove(&id);
            }
        }
    }

    /// True while a team is being removed: nothing is put below it any more.
    pub(crate) fn is_closed(&self, id: TeamId) -> bool {
        self.closers.contains_key(&id)
    }

    /// Begins a removal of a team and those below it, or joins the one that runs.
    ///
    /// # Errors
    /// `too_many_waiting`.
    pub(crate) fn run(
        &mut self,
        id: TeamId,
        workers: &Workers,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) -> Result<Removal, ToolError> {
        if let Some(last) = self.last.get(&id).filter(|last| last.borrow().is_none()) {
            if last.receiver_count() >= MOST_WAITING {
                return Err(refuse::too_many_removers(MOST_WAITING));
            }
            return Ok(Removal(last.subscribe()));
        }
        let (last, removal) = watch::channel(None);
        let last = Arc::new(last);
        self.last.insert(id, last.clone());
        let _detached = workers.spawn(async move {
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            let panicked = |_| Err(ToolError::internal("the removal panicked"));
            last.send_replace(Some(outcome.unwrap_or_else(panicked)));
        });
        Ok(Removal(removal))
    }

    /// A team waits until nothing is below it.
    pub(crate) fn wait(&mut self, id: TeamId, free: oneshot::Sender<()>) {
        self.waiting.push((id, free));
    }

    /// A team is no more.
    pub(crate) fn gone(&mut self, id: TeamId) {
        self.closers.remove(&id);
        self.last.remove(&id);
    }

    /// Tells those that wait and that have nothing below them.
    pub(crate) fn tell(&mut self, has_below: impl Fn(TeamId) -> bool) {
        for (id, free) in std::mem::take(&mut self.waiting) {
            match has_below(id) {
                // An incarnation that is gone is followed by one that asks again.
                true if free.is_closed() => {}
                true => self.waiting.push((id, free)),
                false => drop(free.send(())),
            }
        }
    }
}
