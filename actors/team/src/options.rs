//! Configuration of teams.

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A snapshot of a mailbox's stream, 16 MiB by default, holds all of an inbox; this stays clear
/// of it.
const LARGEST_INBOX_MB: usize = 14;

/// Section `[team]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Most teams at a time.
    pub max_teams: usize,
    /// Most members of all teams together.
    pub max_total_vms: u32,
    /// Most members of one team.
    pub max_vms_per_team: u32,
    /// A team's own limit on its members and those of the teams below it, when its creation
    /// names none.
    pub default_max_vms: u32,
    /// How deep teams may stand below each other; a team without a parent is at depth 0.
    pub max_nesting_depth: u32,
    /// Members of one team that are made, removed or looked at side by side.
    pub max_parallel: usize,
    /// Messages that wait in one inbox. One more is refused. The same holds for a member's tasks:
    /// those without a result and those whose result was not received.
    pub inbox_messages: usize,
    /// Bytes of messages that wait in one inbox, in MiB; at most 14. A third of it is the most for
    /// a member's tasks without a result, and another for its results: more stay in its guest.
    pub inbox_mb: usize,
    /// Messages that one sender may send at once.
    pub message_burst: u32,
    /// Messages a minute that one sender may send. `registry.rate.enabled` switches it off, too.
    pub messages_per_minute: u32,
    /// Calls that ask for messages of one inbox at a time. One more is refused.
    pub inbox_receivers: usize,
    /// Calls that wait for messages to come, of one team, or for the end of one swarm. One more is
    /// refused. They keep no other call out.
    pub waiting_receivers: usize,
    /// Calls that wait that way, of one session. One more is refused.
    pub waiting_receivers_per_session: usize,
    /// Whether answers to a session's calls say, in one line beside the result, what waits in the
    /// inboxes of its teams.
    pub announce_waiting: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_teams: 50,
            max_total_vms: 100,
            max_vms_per_team: 20,
            default_max_vms: 10,
            max_nesting_depth: 3,
            max_parallel: 8,
            inbox_messages: 1_000,
            inbox_mb: 12,
            message_burst: 50,
            messages_per_minute: 300,
            inbox_receivers: 16,
            waiting_receivers: 64,
            waiting_receivers_per_session: 64,
            announce_waiting: true,
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let positive = [
            ("max_teams", self.max_teams),
            ("max_total_vms", self.max_total_vms as usize),
            ("max_vms_per_team", self.max_vms_per_team as usize),
            ("default_max_vms", self.default_max_vms as usize),
            ("max_parallel", self.max_parallel),
            ("inbox_messages", self.inbox_messages),
            ("inbox_mb", self.inbox_mb),
            ("message_burst", self.message_burst as usize),
            ("messages_per_minute", self.messages_per_minute as usize),
            ("inbox_receivers", self.inbox_receivers),
            ("waiting_receivers", self.waiting_receivers),
            ("waiting_receivers_per_session", self.waiting_receivers_per_session),
        ];
        let zeros = positive.iter().filter(|(_, value)| *value == 0);
        let mut wrong: Vec<_> =
            zeros.map(|(key, _)| (*key, "must be above 0".to_owned())).collect();
        if self.inbox_mb > LARGEST_INBOX_MB {
            wrong.push(("inbox_mb", format!("must be at most {LARGEST_INBOX_MB}")));
        }
        // Deeper than this, nobody can oversee who belongs to whom.
        if self.max_nesting_depth > 16 {
            wrong.push(("max_nesting_depth", "must be at most 16".to_owned()));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_named_by_its_key() {
        assert_eq!(Options::default().problems(), []);
        let wrong = Options { max_teams: 0, inbox_mb: 15, ..Options::default() };
        let keys: Vec<_> = wrong.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["max_teams", "inbox_mb"]);
    }
}
