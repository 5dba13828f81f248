//! What is known of a team: a picture, and the events since.
//!
//! Pure. A message is in an inbox or it is not, by its id; so it does no harm that the first events
//! after a picture may be in it already.

use std::collections::{HashSet, VecDeque};

use hivekeep_store::Event;
use hivekeep_team::{Picture, Seen};
use serde_json::Value;

use crate::doors::control::TeamNow;

/// Lines of what happened that are kept.
const LINES: usize = 500;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Board {
    pub(super) name: String,
    /// The team's own word; `destroyed` or `undone` when it is no more.
    pub(super) state: String,
    pub(super) members: Vec<Member>,
    /// What happened, the newest last.
    pub(super) lines: VecDeque<Line>,
    /// Why nothing is heard of it at the moment.
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
    /// Why it is not ready.
    pub(super) reason: Option<String>,
    pub(super) address: Option<String>,
    pub(super) workspace: String,
    /// Ids of the messages in its inbox; `None` when that could not be asked.
    pub(super) inbox: Option<HashSet<String>>,
    workspace_id: Option<String>,
}

/// Something that happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// `12:34:56`, UTC.
    pub(super) time: String,
    /// Who did it, or to whom it happened.
    pub(super) who: String,
    pub(super) what: String,
}

impl Member {
    fn of(seen: Seen) -> Self {
        let inbox = seen.inbox.map(|ids| ids.iter().map(ToString::to_string).collect());
        let member = seen.member;
        Self {
            name: member.name,
            role: member.role,
            status: member.agent_status.unwrap_or_else(|| "unknown".to_owned()),
            reason: member.reason,
            address: member.ip,
            workspace: member.workspace_name,
            workspace_id: member.workspace_id.map(|id| id.to_string()),
            inbox,
        }
    }
}

impl Board {
    /// Everything anew. What is told twice afterwards is told once: the lines go, too.
    pub(super) fn begin(&mut self, now: TeamNow) {
        self.seq = now.seq;
        self.away = None;
        self.lines.clear();
        let Picture { name, team_id, state, members } = now.picture;
        (self.name, self.team_id, self.state) = (name, team_id.to_string(), state);
        self.members = members.into_iter().map(Member::of).collect();
    }

    /// The members were looked at again. Their inboxes stay as the events say.
    pub(super) fn look(&mut self, picture: Picture) {
        if picture.team_id.to_string() != self.team_id {
            return;
        }
        for seen in picture.members {
            let seen = Member::of(seen);
            if let Some(member) = self.members.iter_mut().find(|one| one.name == seen.name) {
                let inbox = member.inbox.take();
                *member = Member { inbox, ..seen };
            }
        }
    }

    /// An event, in order.
    pub(super) fn fold(&mut self, event: &Event) {
        let news = event.seq.get() > self.seq;
        let Some((who, what)) = self.tell(event, news) else { return };
        let time = event.at.format("%H:%M:%S").to_string();
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(Line { time, who, what });
    }

    fn tell(&mut self, event: &Event, news: bool) -> Option<(String, String)> {
        let data = &event.data;
        let field = |key: &str| data[key].as_str().unwrap_or_default().to_owned();
        if event.subject != self.team_id {
            let owner = self.members.iter();
            let owner = owner.filter(|one| one.workspace_id.as_ref() == Some(&event.subject));
            return owner.map(|one| (one.name.clone(), event.kind.clone())).next();
        }
        match event.kind.as_str() {
            "message.put" => {
                let (from, member, bytes) = (field("from"), field("member"), &data["bytes"]);
                if news && let Some(inbox) = self.inbox(&member) {
                    inbox.insert(field("message_id"));
                }
                let kind = field("message_type");
                Some((from, format!("→ {member}  {kind}, {bytes} bytes")))
            }
            "message.taken" => {
                let member = field("member");
                let ids = data["message_ids"].as_array().map_or(&[][..], Vec::as_slice);
                if news && let Some(inbox) = self.inbox(&member) {
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
            kind => {
                let word = kind.strip_prefix("team.").unwrap_or(kind);
                match word {
                    "created" if news => self.state = "ready".to_owned(),
                    "destroyed" | "undone" if news => self.state = word.to_owned(),
                    _ => {}
                }
                Some(("team".to_owned(), word.to_owned()))
            }
        }
    }

    fn inbox(&mut self, member: &str) -> Option<&mut HashSet<String>> {
        self.members.iter_mut().find(|one| one.name == member)?.inbox.as_mut()
    }

    /// Whether nothing more will happen to it.
    pub(super) fn over(&self) -> bool {
        matches!(self.state.as_str(), "destroyed" | "undone")
    }

    /// Messages in all inboxes.
    pub(super) fn waiting(&self) -> usize {
        self.members.iter().filter_map(|one| one.inbox.as_ref()).map(HashSet::len).sum()
    }
}

#[cfg(test)]
pub(super) mod tests;
