//! What a ready team shows of itself, so that its owner's messages need not go through it.
//!
//! ```text
//! message ─► keeper ── the team shows itself, to its owner ──────────────► inboxes
//!               └──── otherwise, and behind what goes this way ─► team ──► inboxes
//! ```
//! A session's messages stay in order: as long as any of a team's is on the long way, all are.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use hivekeep_kernel::{Address, AskError, SessionId, TeamId, ToolError};
use tokio::sync::oneshot;

use super::{
    Card, Msg,
    speak::{Said, Speech},
};

/// Of all teams. Outlives their restarts.
#[derive(Default)]
pub(crate) struct Fronts(DashMap<TeamId, Arc<Front>>);

/// Of one.
#[derive(Default)]
pub(crate) struct Front {
    /// None unless it is ready.
    card: ArcSwapOption<Card>,
    /// Messages that are on the long way.
    around: AtomicUsize,
}

impl Fronts {
    /// That of a team that the keeper knows.
    pub(crate) fn of(&self, team: TeamId) -> Arc<Front> {
        self.0.entry(team).or_default().clone()
    }

    pub(super) fn show(&self, team: TeamId, card: Option<Card>) {
        self.of(team).card.store(card.map(Arc::new));
    }

    /// The team is no more.
    pub(super) fn forget(&self, team: TeamId) {
        self.0.remove(&team);
    }
}

impl Front {
    /// The team as it shows itself, if it is that session's.
    pub(crate) fn card(&self, session: SessionId) -> Option<Arc<Card>> {
        self.card.load_full().filter(|card| card.state.owner == session)
    }

    /// Sends a message on its way without waiting.
    ///
    /// # Errors
    /// What is refused at once.
    pub(crate) fn say(
        self: &Arc<Self>,
        team: &Address<Msg>,
        mut speech: Speech,
    ) -> Result<Saying, ToolError> {
        if self.around.load(SeqCst) == 0
            && let Some(card) = self.card(speech.session)
        {
            return card.say(speech).map(Saying::Here);
        }
        speech.around = Some(Around::begin(self.clone()));
        let (reply, answer) = oneshot::channel();
        team.send(Msg::Speak(speech, reply))?;
        Ok(Saying::There(answer))
    }
}

/// A message on its way.
pub(crate) enum Saying {
    /// To the inboxes.
    Here(Said),
    /// To the team.
    There(oneshot::Receiver<Result<Said, ToolError>>),
}

impl Saying {
    /// That it was sent to the inboxes.
    pub(crate) async fn said(self) -> Result<Said, ToolError> {
        match self {
            Self::Here(said) => Ok(said),
            Self::There(answer) => {
                answer.await.map_err(|_| AskError::Dropped("the team".to_owned()))?
            }
        }
    }
}

/// Counts a message on the long way until it was sent on, or is dropped.
pub(crate) struct Around(Arc<Front>);

impl Around {
    fn begin(front: Arc<Front>) -> Self {
        front.around.fetch_add(1, SeqCst);
        Self(front)
    }
}

impl Drop for Around {
    fn drop(&mut self) {
        self.0.around.fetch_sub(1, SeqCst);
    }
}
