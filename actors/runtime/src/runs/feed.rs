//! Events of a run as somebody follows it.

use async_trait::async_trait;
use hivekeep_kernel::{ToolError, User};
use hivekeep_ports::{ChatEvent, ChatEvents};

use super::{RunCaller, RunCursor, RunEvent, RunState, Runs, SequencedEvent};
use crate::saga::Saga;

/// Run that somebody follows.
struct RunFeed<G: Saga<State: RunState>> {
    runs: Runs<G>,
    caller: RunCaller,
    id: String,
    cursor: RunCursor,
}

impl<G: Saga<State: RunState>> Runs<G> {
    /// Events of a run of the user's, from behind a sequence on, and those that are to come; `None` for one that the
    /// user has not. Nothing is read before it is asked for.
    pub fn feed(&self, user: User, id: &str, after: u64) -> Option<Box<dyn ChatEvents>> {
        let caller = RunCaller { user, operator: false };
        self.get(caller, id).ok()?;
        let (runs, cursor, id) = (self.clone(), RunCursor::behind(after), id.to_owned());
        Some(Box::new(RunFeed { runs, caller, id, cursor }))
    }
}

#[async_trait]
impl<G: Saga<State: RunState>> ChatEvents for RunFeed<G> {
    async fn next(&mut self) -> Result<Vec<ChatEvent>, ToolError> {
        // Put back when it has ended, so that one that is dropped in between has read nothing.
        let mut cursor = self.cursor;
        let events = self.runs.next_events(self.caller, &self.id, &mut cursor).await?;
        self.cursor = cursor;
        let shown = |SequencedEvent { sequence, recorded_at, event }| {
            let RunEvent { event_type, payload } = event;
            ChatEvent { sequence, event_type, payload, recorded_at }
        };
        Ok(events.into_iter().map(shown).collect())
    }
}
