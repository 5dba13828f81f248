//! The inputs and results of the tool `team`, as plain data.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{MessageId, TeamId, WorkspaceId};
use hivekeep_ports::NetworkGroup;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Make, watch and remove teams, and pass messages between their members. Each
/// member has a workspace, owned by the session that made the team, and an inbox
/// that outlives the daemon. All members of a team are made, or none. Only that
/// session operates the team, or one that has adopted all of its workspaces.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Team {
    /// Make a team. Draws from the bucket `create` of the session's rates.
    Create(CreateTeam),
    /// Remove a team, those below it, and every workspace of theirs.
    Destroy {
        /// The team's name.
        name: String,
    },
    /// Look at a team as it is now.
    Status {
        /// The team's name.
        name: String,
    },
    /// Show all teams.
    List,
    /// Send a message to a member.
    Message(SendMessage),
    /// Take messages from a member's inbox.
    Receive(ReceiveMessages),
}

/// A team that is wanted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CreateTeam {
    /// The team's name, 1 to 64 of A-Z, a-z, 0-9 and -, beginning and ending with a letter or digit, not in use.
    pub name: String,
    /// The members, one at least.
    #[schemars(length(min = 1))]
    pub roles: Vec<TeamRole>,
    /// Most members of the team and of all teams below it. Default: `team.default_max_vms` of the configuration.
    pub max_vms: Option<u32>,
    /// Name of a snapshot; the members are made as forks of it. Without golden_workspace it is looked for among the caller's workspaces.
    pub base_snapshot: Option<String>,
    /// Id or name of the workspace that has base_snapshot, whose default is then `golden`.
    pub golden_workspace: Option<String>,
    /// The team that the new one is below. Its members count for every team above it, and it is destroyed with them.
    pub parent_team: Option<String>,
}

/// A message from a member to others.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct SendMessage {
    /// The team's name.
    pub name: String,
    /// The member that sends.
    pub agent: String,
    /// The member it is for, or `*` for all but the sender.
    pub to: String,
    /// Content of the message, at most 262144 bytes.
    pub content: String,
    /// A word for what it is, up to 64 characters. Default: text. A `task_assignment` is run in the guest of each member it is for: its content is a JSON object of task_id, command and, as wished, workdir, env (names and values) and timeout_secs (1 to 86400, default 300); its result is received as one of daemon_results. A member runs a task_id once: a repeat is answered with what became of it.
    #[schemars(length(min = 1, max = 64))]
    pub message_type: Option<String>,
}

/// Messages and results to take from a member's inbox, and how they are confirmed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ReceiveMessages {
    /// The team's name.
    pub name: String,
    /// The member whose inbox is read.
    pub agent: String,
    /// Most messages to hand out, and most results of tasks, 1 to 100. Default: 10. Large ones are fewer at a time.
    #[schemars(range(min = 1, max = 100))]
    pub limit: Option<usize>,
    /// Wait this long for the first message or result, up to 300 seconds. Default: 0, answer at once.
    #[schemars(range(max = 300))]
    pub wait_secs: Option<u64>,
    /// `answer`, the default, removes messages once the answer is written to the caller's connection; those of a call that was cancelled, or whose connection broke before, are handed out again. `explicit` keeps them until a later receive names them in confirmed: none is lost when a connection breaks at the wrong moment, and what was not confirmed comes again with `redelivered`.
    pub confirm: Option<Confirm>,
    /// Ids of messages that arrived earlier, and of those that assigned tasks whose results did; they are removed first.
    #[schemars(length(max = 1000))]
    pub confirmed: Option<BTreeSet<MessageId>>,
}

/// An action, as its answer names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TeamAction {
    /// A team was made.
    Create,
    /// A team was removed, with those below it.
    Destroy,
    /// A team is shown.
    Status,
    /// All teams are shown.
    List,
    /// A message was sent.
    Message,
    /// Messages were received.
    Receive,
}

/// When a message counts as received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confirm {
    /// When the answer with it is written to the caller's connection.
    #[default]
    Answer,
    /// When a later receive says so.
    Explicit,
}

/// A member that is wanted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TeamRole {
    /// The member's name, unique in the team; same rule as for teams.
    pub name: String,
    /// The member's function; same rule. Its workspace is named after the team, the role and four hex digits.
    pub role: String,
    /// Abilities of the member, at most 64 of up to 4096 bytes.
    #[serde(default)]
    pub skills: Vec<String>,
    /// Description of the member, up to 4096 bytes.
    pub description: Option<String>,
}

/// Result of an action. A field begins with the actions that have it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TeamResult {
    /// The action.
    pub action: Option<TeamAction>,
    /// All but list: the team.
    pub name: Option<String>,
    /// create, status: its id.
    pub team_id: Option<TeamId>,
    /// create, status: `creating`, `ready` or `destroying`.
    pub state: Option<String>,
    /// create: how many members it has.
    pub member_count: Option<usize>,
    /// create: their workspaces, in the order of roles.
    pub member_workspace_ids: Option<Vec<WorkspaceId>>,
    /// create, status: most members of it and of the teams below it.
    pub max_vms: Option<u32>,
    /// status: when it was made.
    pub created_at: Option<DateTime<Utc>>,
    /// create, status: the members. destroy: those of the team and of all below it, and what became of each.
    pub members: Option<Vec<TeamMember>>,
    /// create, status: what the members have of a network. They reach one another in a group of their own and no other workspace; a team below is another group.
    pub network: Option<TeamNetwork>,
    /// create, status: whether the members' cards are in the vault, at `teams/<name>/cards/<member>.json`. destroy: absent unless some could not be removed. The team works without them.
    pub cards: Option<TeamCards>,
    /// status: the team above it.
    pub parent_team: Option<String>,
    /// status: the teams directly below it.
    pub sub_teams: Option<Vec<String>>,
    /// destroy: always true; when anything is left it is an error that names it.
    pub success: Option<bool>,
    /// list: all teams, the oldest first.
    pub teams: Option<Vec<TeamRow>>,
    /// list: how many teams. receive: how many messages.
    pub count: Option<usize>,
    /// message: its id, the same for all that it went to.
    pub message_id: Option<MessageId>,
    /// message: `delivered`, durably in the inbox; `partly_delivered` when undelivered names some.
    pub status: Option<String>,
    /// message: the sender.
    pub from: Option<String>,
    /// message: to whom, as it was asked for.
    pub to: Option<String>,
    /// message: in whose inboxes it is.
    pub delivered_to: Option<Vec<String>>,
    /// message to `*`: in whose it is not, and why.
    pub undelivered: Option<Vec<Undelivered>>,
    /// receive: whose inbox it is.
    pub agent: Option<String>,
    /// receive: the messages, the oldest first.
    pub messages: Option<Vec<TeamMessage>>,
    /// receive: how many were left for the next time.
    pub waiting: Option<usize>,
    /// receive: how many of confirmed were there, and are gone now.
    pub confirmed: Option<usize>,
    /// receive: results of tasks, in the order in which they came; the rules are those of messages.
    pub daemon_results: Option<Vec<TaskReport>>,
    /// receive: how many results were left for the next time.
    pub daemon_results_waiting: Option<usize>,
    /// receive: tasks whose results are still to come: they wait on the host or in the guest, or run.
    pub daemon_pending_tasks: Option<usize>,
    /// receive: which of `messages` and `daemon_results` cannot be told, whose actor has given up. What is told of it is empty, and nothing of it is confirmed. Otherwise absent.
    pub unavailable: Option<Unavailable>,
    /// message of the type `task_assignment`: where the task stands with each member that has it.
    pub tasks: Option<Vec<AssignedTask>>,
}

/// A member.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TeamMember {
    /// Its name.
    pub name: String,
    /// The member's function.
    pub role: String,
    /// destroy: its team, when that is one below.
    pub team: Option<String>,
    /// Its workspace; absent as long as that is not made.
    pub workspace_id: Option<WorkspaceId>,
    /// Name of its workspace.
    pub workspace_name: String,
    /// status: its address; absent while it has no network.
    pub ip: Option<String>,
    /// status: what its workspace is doing, as workspace_info tells it; absent when it could not be asked.
    pub workspace_state: Option<String>,
    /// status: `initializing`, `ready` (its guest answers), `working` (and runs tasks), `failed`, or `unknown` when it could not be asked.
    pub agent_status: Option<String>,
    /// status: why it is not ready.
    pub reason: Option<String>,
    /// status: its tasks without a result; they wait as long as its workspace does not run.
    pub pending_tasks: Option<usize>,
    /// status: those of them that run now.
    pub running_tasks: Option<usize>,
    /// status: its results of tasks that were not received.
    pub waiting_results: Option<usize>,
    /// status: what keeps its tasks from its guest at present.
    pub tasks_held_up: Option<String>,
    /// destroy: whether its workspace is gone.
    pub destroyed: Option<bool>,
    /// destroy: why not.
    pub error: Option<String>,
}

/// A team in the list.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TeamRow {
    /// Its name.
    pub name: String,
    /// Its id.
    pub team_id: TeamId,
    /// `creating`, `ready`, `destroying`, or `unavailable` while its actor does not answer.
    pub state: String,
    /// How many members it has.
    pub member_count: usize,
    /// Most members of it and of the teams below it.
    pub max_vms: u32,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// The team above it.
    pub parent_team: Option<String>,
    /// Whether it is the calling session's; absent while it is unavailable.
    pub owned: Option<bool>,
}

/// A message as it is received.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TeamMessage {
    /// Its id. A repeat has the same one.
    pub message_id: MessageId,
    /// The member that sent it.
    pub from: String,
    /// To whom: a member, or `*`.
    pub to: String,
    /// Content of the message.
    pub content: String,
    /// The sender's word for what it is.
    pub message_type: String,
    /// When it was sent.
    pub timestamp: DateTime<Utc>,
    /// Whether it may have been handed out before: an answer with it did not arrive, it was not confirmed, or the daemon was started again meanwhile.
    pub redelivered: bool,
}

/// Result of a task.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TaskReport {
    /// The task's id, as it was assigned.
    pub task_id: String,
    /// Whether its command exited with 0.
    pub success: bool,
    /// Exit status; 128 and the signal's number when a signal ended it, -1 when there is none.
    pub exit_code: i32,
    /// The beginning of what it wrote to stdout, at most 16 KiB and a notice of how much there was.
    pub stdout: String,
    /// The same of stderr.
    pub stderr: String,
    /// From its start to the end of its command, in whole seconds.
    pub elapsed_secs: u64,
    /// The message that assigned it.
    pub source_message_id: MessageId,
    /// `exited`, `signalled`, `timed_out`, `interrupted` (its machine went down under it: it is not run again), `cancelled`, `invalid` (it was not run) or `lost` (its workspace is gone).
    pub outcome: String,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// invalid, lost: why, for programs.
    pub code: Option<String>,
    /// invalid, lost: why.
    pub reason: Option<String>,
    /// Where it ran.
    pub workdir: Option<String>,
    /// From its start to the end of its command.
    pub elapsed_ms: u64,
    /// Bytes it wrote to stdout.
    pub stdout_bytes: u64,
    /// Bytes it wrote to stderr.
    pub stderr_bytes: u64,
    /// Whether stdout or stderr was cut.
    pub truncated: bool,
    /// File in its workspace with all it wrote to stdout, up to 16 MiB, for file_read and file_transfer; absent when stdout has all.
    pub stdout_path: Option<String>,
    /// The same of stderr.
    pub stderr_path: Option<String>,
    /// receive: whether it may have been handed out before, as with messages.
    pub redelivered: Option<bool>,
}

/// A task with a member that has it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AssignedTask {
    /// The member.
    pub to: String,
    /// `queued`, durably; of a repeat `pending` (without a result), `done` (its result waits to be received) or `received`.
    pub state: String,
    /// The member had been given this task before: nothing was assigned.
    pub repeat: bool,
    /// Result of a repeated task that is for one member, when it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<TaskReport>,
}

/// Part of a member's inbox that cannot be received.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Unavailable {
    /// `messages` or `daemon_results`.
    pub what: String,
    /// Why.
    pub error: String,
}

/// A member that a message did not reach.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Undelivered {
    /// The member.
    pub to: String,
    /// Code of the error.
    pub code: String,
    /// Why.
    pub error: String,
}

/// Network between the members of a team.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TeamNetwork {
    /// How machines are connected: `bridge`, `user` (each alone), `off`, or `unknown` when the network does not say.
    pub mode: String,
    /// Whether every member reaches every other one over the network, on the ports that its policy allows.
    pub members_reach_each_other: bool,
    /// The group that lets them; absent where there is none.
    pub group: Option<NetworkGroup>,
    /// Why they do not reach each other.
    pub reason: Option<String>,
}

/// State of a team's cards in the vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TeamCards {
    /// The cards are in the vault as the members were seen last.
    Written,
    /// The cards have not been looked at since the start.
    Pending,
    /// Some cards are missing or old. They are written at the next change.
    Error(String),
}
