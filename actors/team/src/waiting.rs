//! Read model of the inboxes: for each session, a summary of what waits for it in its teams.
//!
//! Each member keeps its own line of it current from its team's mailbox, before anybody hears of
//! what changed: so the answer that delivers an item does not announce it, and the next one that
//! does not, does. Readers look into memory and wait for nobody.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use dashmap::{DashMap, Entry};
use hivekeep_kernel::{SessionId, TeamId};
use hivekeep_ports::{OldestWaiting, WaitingMessages, WaitingSummary};

/// Summaries of all sessions for which something waits.
#[derive(Debug, Default)]
pub(crate) struct WaitingBoard(DashMap<SessionId, BTreeMap<MemberKey, Line>>);

/// A member: its team, and its number in it.
type MemberKey = (TeamId, usize);

/// A member's line, and the incarnation that wrote it.
#[derive(Debug)]
struct Line {
    by: u64,
    waits: WaitingSummary,
}

impl WaitingMessages for WaitingBoard {
    fn of(&self, session: SessionId) -> Option<WaitingSummary> {
        let lines = self.0.get(&session)?;
        let waits = || lines.values().map(|line| &line.waits);
        let oldest = waits().map(|waits| &waits.oldest).min_by_key(|oldest| oldest.since)?;
        Some(WaitingSummary {
            messages: waits().map(|waits| waits.messages).sum(),
            results: waits().map(|waits| waits.results).sum(),
            oldest: oldest.clone(),
        })
    }
}

/// Items of one kind that wait for a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) count: usize,
    /// Sender of the oldest, and since when it waits.
    pub(crate) oldest: Option<(String, DateTime<Utc>)>,
}

/// A member's line on the board, which goes with it.
pub(crate) struct BoardLine {
    board: Arc<WaitingBoard>,
    key: MemberKey,
    by: u64,
    owner: SessionId,
    team: String,
    member: String,
    /// Messages and results as they were written last.
    written: [Queue; 2],
}

impl BoardLine {
    /// A line without anything yet. No two incarnations have the same number.
    pub(crate) fn new(
        board: Arc<WaitingBoard>,
        key: MemberKey,
        incarnation: u64,
        owner: SessionId,
        [team, member]: [String; 2],
    ) -> Self {
        Self { board, key, by: incarnation, owner, team, member, written: Default::default() }
    }

    /// Writes what waits now.
    pub(crate) fn write(&mut self, queues: [Queue; 2]) {
        if self.written != queues {
            self.written = queues;
            self.put();
        }
    }

    /// Another session operates the team.
    pub(crate) fn hand_over(&mut self, owner: SessionId) {
        if self.owner != owner {
            self.erase();
            self.owner = owner;
            self.put();
        }
    }

    fn put(&self) {
        let [messages, results] = &self.written;
        let oldest = [&messages.oldest, &results.oldest].into_iter().flatten();
        let Some((from, since)) = oldest.min_by_key(|(_, since)| *since) else {
            return self.erase();
        };
        let oldest = OldestWaiting {
            team: self.team.clone(),
            member: self.member.clone(),
            from: from.clone(),
            since: *since,
        };
        let waits = WaitingSummary { messages: messages.count, results: results.count, oldest };
        let mut lines = self.board.0.entry(self.owner).or_default();
        lines.insert(self.key, Line { by: self.by, waits });
    }

    /// Takes the line away, unless a later incarnation has written it anew.
    fn erase(&self) {
        let Entry::Occupied(mut lines) = self.board.0.entry(self.owner) else { return };
        if lines.get().get(&self.key).is_some_and(|line| line.by <= self.by) {
            lines.get_mut().remove(&self.key);
        }
        if lines.get().is_empty() {
            lines.remove();
        }
    }
}

impl Drop for BoardLine {
    fn drop(&mut self) {
        self.erase();
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn line(board: &Arc<WaitingBoard>, key: MemberKey, by: u64, owner: SessionId) -> BoardLine {
        let names = ["crew".to_owned(), format!("m{}", key.1)];
        BoardLine::new(board.clone(), key, by, owner, names)
    }

    fn queue(count: usize, from: &str, age_secs: i64) -> Queue {
        let at = DateTime::UNIX_EPOCH - TimeDelta::seconds(age_secs);
        Queue { count, oldest: Some((from.to_owned(), at)) }
    }

    #[test]
    fn lines_add_up_by_session_and_go_with_their_members() {
        let (board, team) = (Arc::<WaitingBoard>::default(), TeamId::new());
        let (mine, other) = (SessionId::new(), SessionId::new());
        let (mut one, mut two) =
            (line(&board, (team, 0), 1, mine), line(&board, (team, 1), 2, mine));
        assert_eq!(board.of(mine), None);
        one.write([queue(2, "a", 5), queue(1, "m0", 9)]);
        two.write([queue(1, "b", 7), Queue::default()]);
        let waits = board.of(mine).expect("something waits");
        assert_eq!((waits.messages, waits.results), (3, 1));
        assert_eq!((&*waits.oldest.from, &*waits.oldest.member), ("m0", "m0"));
        one.hand_over(other);
        assert_eq!(board.of(mine).expect("one is left").oldest.from, "b");
        assert_eq!(board.of(other).expect("handed over").messages, 2);
        two.write(Default::default());
        assert_eq!(board.of(mine), None);
        // The next incarnation comes before the end of the one before.
        let mut next = line(&board, (team, 0), 3, other);
        next.write([queue(9, "c", 1), Queue::default()]);
        drop(one);
        assert_eq!(board.of(other).expect("the next one's").messages, 9);
        drop((two, next));
        assert!(board.0.is_empty(), "nothing is kept of what is gone");
    }
}
