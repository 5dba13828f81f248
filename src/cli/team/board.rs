//! Model of a team's view: a snapshot, and the events since.
//!
//! Pure. A message is in an inbox or it is not, by its id; so it does no harm that the first events
//! after a picture may be in it already.

use std::collections::{HashSet, VecDeque};

use hivekeep_store::JournalEvent;
use hivekeep_team::{Picture, Seen};
use serde_json::Value;

use crate::control::TeamSnapshot;

/// Lines of what happened that are kept.
const LINES: usize = 500;
/// Words of `status`.
const READY: &str = "ready";
const WORKING: &str = "working";
const UNKNOWN: &str = "unknown";
/// The event of a task that has written something.
const PROGRESS: &str = "task.progress";

/// View of a team, built from a snapshot and events.
#[derive(Debug, Default)]
pub(super) struct Board {
    pub(super) name: String,
    /// The team's own word; `destroyed` or `undone` when it is no more.
    pub(super) state: String,
    pub(super) members: Vec<Member>,
    /// Lines about recent events, the newest last.
    pub(super) lines: VecDeque<Line>,
    /// The reason why no events of the team arrive at the moment.
    pub(super) away: Option<String>,
    team_id: String,
    /// Events up to this one are in the picture.
    seq: u64,
}

/// A member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) role: String,
    pub(super) status: String,
    /// The reason why the team is not ready.
    pub(super) reason: Option<String>,
    pub(super) address: Option<String>,
    pub(super) workspace: String,
    /// Counts of running and of waiting tasks; `None` when they could not be asked for.
    pub(super) tasks: Option<(usize, usize)>,
    /// Ids of the messages in its inbox; `None` when that could not be asked.
    pub(super) inbox: Option<HashSet<String>>,
    workspace_id: Option<String>,
}

/// Something that happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// `12:34:56`, UTC.
    pub(super) time: String,
    /// The member that acted, or that was acted on.
    pub(super) who: String,
    pub(super) what: String,
    /// The task that the progress is about.
    progress: Option<String>,
}

impl Member {
    fn of(seen: Seen) -> Self {
        let inbox = seen.inbox.map(|ids| ids.iter().map(ToString::to_string).collect());
        let member = seen.member;
        let tasks = member.running_tasks.zip(member.pending_tasks);
        Self {
            tasks: tasks.map(|(running, pending)| (running, pending.saturating_sub(running))),
            name: member.name,
            role: member.role,
            status: member.agent_status.unwrap_or_else(|| UNKNOWN.to_owned()),
            reason: member.reason.or(member.tasks_held_up),
            address: member.ip,
            workspace: member.workspace_name,
            workspace_id: member.workspace_id.map(|id| id.to_string()),
            inbox,
        }
    }
}

impl Board {
    /// Everything anew. What is told twice afterwards is told once: the lines go, too.
    pub(super) fn begin(&mut self, now: TeamSnapshot) {
        self.seq = now.seq;
        self.away = None;
        self.lines.clear();
        let Picture { name, team_id, state, members } = now.picture;
        (self.name, self.team_id, self.state) = (name, team_id.to_string(), state);
        self.members = members.into_iter().map(Member::of).collect();
    }

    /// The members were looked at again, their machines perhaps not. Their inboxes stay as the
    /// events say.
    pub(super) fn look(&mut self, picture: Picture) {
        if picture.team_id.to_string() != self.team_id {
            return;
        }
        for seen in picture.members {
            let whole = seen.member.agent_status.is_some();
            let seen = Member::of(seen);
            let Some(member) = self.members.iter_mut().find(|one| one.name == seen.name) else {
                continue;
            };
            if whole {
                *member = Member { inbox: member.inbox.take(), ..seen };
                continue;
            }
            let works = seen.tasks.is_some_and(|(running, _)| running > 0);
            member.tasks = seen.tasks;
            match member.status.as_str() {
                READY if works => member.status = WORKING.to_owned(),
                WORKING if !works => member.status = READY.to_owned(),
                _ => {}
            }
        }
    }

    /// An event, in order.
    pub(super) fn fold(&mut self, event: &JournalEvent) {
        let is_new = event.seq.get() > self.seq;
        let Some((who, what)) = self.tell(event, is_new) else { return };
        let time = event.at.format("%H:%M:%S").to_string();
        // A task that writes and writes is one line.
        let task = (event.kind == PROGRESS).then(|| format!("{who} {}", event.data["task_id"]));
        if task.is_some() && self.lines.back().is_some_and(|last| last.progress == task) {
            self.lines.pop_back();
        } else if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(Line { time, who, what, progress: task });
    }

    fn tell(&mut self, event: &JournalEvent, is_new: bool) -> Option<(String, String)> {
        let data = &event.data;
        let field = |key: &str| data[key].as_str().unwrap_or_default().to_owned();
        if event.subject != self.team_id {
            let subject = Some(&event.subject);
            let owner = self.members.iter().find(|one| one.workspace_id.as_ref() == subject)?;
            let what = match event.kind.as_str() {
                PROGRESS => {
                    let bytes = ["stdout_bytes", "stderr_bytes"].map(|key| data[key].as_u64());
                    let bytes: u64 = bytes.into_iter().flatten().sum();
                    format!("wrote {bytes} bytes in task {}", field("task_id"))
                }
                kind => kind.to_owned(),
            };
            return Some((owner.name.clone(), what));
        }
        match event.kind.as_str() {
            "message.put" => {
                let (from, member, bytes) = (field("from"), field("member"), &data["bytes"]);
                if is_new && let Some(inbox) = self.inbox(&member) {
                    inbox.insert(field("message_id"));
                }
                let kind = field("message_type");
                Some((from, format!("→ {member}  {kind}, {bytes} bytes")))
            }
            "message.taken" => {
                let member = field("member");
                let ids = data["message_ids"].as_array().map_or(&[][..], Vec::as_slice);
                if is_new && let Some(inbox) = self.inbox(&member) {
                    for id in ids.iter().filter_map(Value::as_str) {
                        inbox.remove(id);
                    }
                }
                let what = match ids.len() {
                    1 => "took a message".to_owned(),
                    many => format!("took {many} messages"),
                };
                Some((member, what))
            }
            "task.assigned" => {
                Some((field("from"), format!("→ {}  task {}", field("member"), field("task_id"))))
            }
            "task.put" => Some((field("member"), format!("has task {}", field("task_id")))),
            "task.ended" => {
                let (outcome, ms) = (outcome(data), &data["elapsed_ms"]);
                Some((
                    field("member"),
                    format!("ended task {}  {outcome}, {ms} ms", field("task_id")),
                ))
            }
            "task.taken" => {
                let count = data["message_ids"].as_array().map_or(0, Vec::len);
                let what =
                    if count == 1 { "a result".to_owned() } else { format!("{count} results") };
                Some((field("member"), format!("{what} received")))
            }
            kind => {
                let word = kind.strip_prefix("team.").unwrap_or(kind);
                match word {
                    "created" if is_new => self.state = "ready".to_owned(),
                    "destroyed" | "undone" if is_new => self.state = word.to_owned(),
                    _ => {}
                }
                Some(("team".to_owned(), word.to_owned()))
            }
        }
    }

    fn inbox(&mut self, member: &str) -> Option<&mut HashSet<String>> {
        self.members.iter_mut().find(|one| one.name == member)?.inbox.as_mut()
    }

    /// True when nothing more will happen to the team.
    pub(super) fn over(&self) -> bool {
        matches!(self.state.as_str(), "destroyed" | "undone")
    }

    /// Tasks that run, of all members.
    pub(super) fn running(&self) -> usize {
        self.members.iter().filter_map(|one| one.tasks).map(|(running, _)| running).sum()
    }

    /// Messages in all inboxes.
    pub(super) fn waiting(&self) -> usize {
        self.members.iter().filter_map(|one| one.inbox.as_ref()).map(HashSet::len).sum()
    }
}

/// A task's outcome: its word, and the exit status or signal that belongs to it.
fn outcome(told: &Value) -> String {
    let word = told["outcome"].as_str().unwrap_or("somehow").replace('_', " ");
    match told["exit_code"].as_i64().or(told["signal"].as_i64()) {
        Some(number) => format!("{word} {number}"),
        None => word,
    }
}

#[cfg(test)]
pub(super) mod tests;
