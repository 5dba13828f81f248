//! Configuration of teams.

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Section `[team]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Most teams at a time.
    #[schemars(range(min = 1))]
    pub max_teams: usize,
    /// Most members of all teams together.
    #[schemars(range(min = 1))]
    pub max_total_vms: u32,
    /// Most members of one team.
    #[schemars(range(min = 1))]
    pub max_vms_per_team: u32,
    /// A team's own limit on its members and those of the teams below it, when its creation
    /// names none.
    #[schemars(range(min = 1))]
    pub default_max_vms: u32,
    /// How deep teams may stand below each other; a team without a parent is at depth 0.
    // Deeper than this, nobody can oversee who belongs to whom.
    #[schemars(range(max = 16))]
    pub max_nesting_depth: u32,
    /// Members of one team that are made, removed or looked at side by side.
    #[schemars(range(min = 1))]
    pub max_parallel: usize,
    /// Messages that wait in one inbox. One more is refused. The same holds for a member's tasks:
    /// those without a result and those whose result was not received.
    #[schemars(range(min = 1))]
    pub inbox_messages: usize,
    /// Bytes of messages that wait in one inbox, in MiB. A third of it is the most for
    /// a member's tasks without a result, and another for its results: more stay in its guest.
    // A snapshot of a mailbox's stream, 16 MiB by default, holds all of an inbox.
    #[schemars(range(min = 1, max = 14))]
    pub inbox_mb: usize,
    /// Messages that one sender may send at once.
    #[schemars(range(min = 1))]
    pub message_burst: u32,
    /// Messages a minute that one sender may send. `registry.rate.enabled` switches it off, too.
    #[schemars(range(min = 1))]
    pub messages_per_minute: u32,
    /// Calls that ask for messages of one inbox at a time. One more is refused.
    #[schemars(range(min = 1))]
    pub inbox_receivers: usize,
    /// Calls that wait for messages to come, of one team, or for the end of one swarm. One more is
    /// refused. They keep no other call out.
    #[schemars(range(min = 1))]
    pub waiting_receivers: usize,
    /// Calls that wait that way, of one session. One more is refused.
    #[schemars(range(min = 1))]
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

impl FamilyOptions for Options {}
