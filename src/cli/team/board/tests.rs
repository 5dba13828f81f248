use chrono::{DateTime, Utc};
use hivekeep_kernel::{MessageId, TeamId, WorkspaceId};
use hivekeep_store::Seq;
use hivekeep_team::api::TeamMember;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A team of `a` and `b`, both ready, as it was after the event `seq`.
pub(in crate::cli::team) struct Stage {
    pub(in crate::cli::team) board: Board,
    team: TeamId,
    pub(in crate::cli::team) workspaces: Vec<WorkspaceId>,
    seq: u64,
}

impl Stage {
    pub(in crate::cli::team) fn new() -> Self {
        let (team, workspaces) = (TeamId::new(), vec![WorkspaceId::new(), WorkspaceId::new()]);
        let mut stage = Self { board: Board::default(), team, workspaces, seq: 10 };
        let picture = stage.picture(&[&[], &[]]);
        stage.board.begin(TeamSnapshot { seq: 10, picture });
        stage
    }

    pub(in crate::cli::team) fn picture(&self, inboxes: &[&[MessageId]]) -> Picture {
        let member = |at: usize| TeamMember {
            name: ["a", "b"][at].to_owned(),
            role: "hand".to_owned(),
            workspace_id: Some(self.workspaces[at]),
            workspace_name: format!("crew-hand-000{at}"),
            ip: Some(format!("10.0.0.{at}")),
            agent_status: Some("ready".to_owned()),
            ..TeamMember::default()
        };
        let members = inboxes.iter().enumerate();
        let members =
            members.map(|(at, ids)| Seen { member: member(at), inbox: Some(ids.to_vec()) });
        Picture {
            name: "crew".to_owned(),
            team_id: self.team,
            state: "ready".to_owned(),
            members: members.collect(),
        }
    }

    pub(in crate::cli::team) fn event(
        &mut self,
        kind: &str,
        subject: String,
        data: Value,
    ) -> JournalEvent {
        self.seq += 1;
        let at = DateTime::<Utc>::UNIX_EPOCH + chrono::Duration::seconds(self.seq as i64);
        JournalEvent { seq: Seq::new(self.seq), at, kind: kind.to_owned(), subject, data }
    }

    fn of_team(&mut self, kind: &str, data: Value) -> JournalEvent {
        self.event(kind, self.team.to_string(), data)
    }

    pub(in crate::cli::team) fn put(&mut self, id: MessageId) -> JournalEvent {
        let data = json!({
            "message_id": id, "member": "b", "from": "a", "to": "b", "message_type": "text",
            "bytes": 12,
        });
        self.of_team("message.put", data)
    }

    pub(in crate::cli::team) fn taken(&mut self, ids: &[MessageId]) -> JournalEvent {
        self.of_team("message.taken", json!({ "message_ids": ids, "member": "b" }))
    }

    fn inbox(&self) -> usize {
        self.board.members[1].inbox.as_ref().expect("asked").len()
    }
}

#[test]
fn messages_move_and_what_happened_is_told() {
    let mut stage = Stage::new();
    let (one, two) = (MessageId::new(), MessageId::new());
    for id in [one, two] {
        let put = stage.put(id);
        stage.board.fold(&put);
    }
    assert_eq!((stage.inbox(), stage.board.waiting()), (2, 2));
    let taken = stage.taken(&[one, two]);
    stage.board.fold(&taken);
    assert_eq!((stage.inbox(), stage.board.waiting()), (0, 0));
    let told: Vec<_> = stage.board.lines.iter().map(|line| (&*line.who, &*line.what)).collect();
    let put = ("a", "→ b  text, 12 bytes");
    assert_eq!(told, [put, put, ("b", "took 2 messages")]);
    assert_eq!(stage.board.lines[0].time, "00:00:11");
}

#[test]
fn only_the_teams_own_events_count_and_its_end_is_seen() {
    let mut stage = Stage::new();
    let elsewhere = stage.event("message.put", TeamId::new().to_string(), json!({"member": "b"}));
    let call = stage.event("call.finished", "call_1".to_owned(), json!({}));
    let other = stage.event("workspace.stopped", WorkspaceId::new().to_string(), json!({}));
    for event in [elsewhere, call, other] {
        stage.board.fold(&event);
    }
    assert!(stage.board.lines.is_empty() && stage.board.waiting() == 0);
    let stopped = stage.event("workspace.stopped", stage.workspaces[1].to_string(), json!({}));
    stage.board.fold(&stopped);
    let line = stage.board.lines.back().expect("told");
    assert_eq!((&*line.who, &*line.what), ("b", "workspace.stopped"));
    assert!(!stage.board.over());
    let gone = stage.of_team("team.destroyed", json!({"name": "crew"}));
    stage.board.fold(&gone);
    assert_eq!((&*stage.board.state, stage.board.over()), ("destroyed", true));
}

#[test]
fn a_look_changes_members_and_not_their_inboxes() {
    let mut stage = Stage::new();
    let put = stage.put(MessageId::new());
    stage.board.fold(&put);
    let mut picture = stage.picture(&[&[], &[]]);
    picture.members[1].member.agent_status = Some("failed".to_owned());
    stage.board.look(picture);
    assert_eq!((stage.inbox(), &*stage.board.members[1].status), (1, "failed"));
    // One of another team of this name, which came after it.
    let later = Stage::new().picture(&[&[], &[]]);
    stage.board.look(later);
    assert_eq!(stage.board.members[1].status, "failed");
}

#[test]
fn tasks_are_told_and_counted_by_looks() {
    let mut stage = Stage::new();
    let told = [
        ("task.assigned", json!({"from": "a", "member": "b", "task_id": "t1"})),
        ("task.put", json!({"member": "b", "task_id": "t1"})),
        (
            "task.ended",
            json!({
                "member": "b", "task_id": "t1", "outcome": "exited", "exit_code": 3,
                "elapsed_ms": 12,
            }),
        ),
        (
            "task.ended",
            json!({"member": "b", "task_id": "t2", "outcome": "timed_out", "elapsed_ms": 9}),
        ),
        ("task.taken", json!({"member": "b", "message_ids": ["m1", "m2"]})),
    ];
    for (kind, data) in told {
        let event = stage.of_team(kind, data);
        stage.board.fold(&event);
    }
    let lines: Vec<_> = stage.board.lines.iter().map(|line| (&*line.who, &*line.what)).collect();
    let expected = [
        ("a", "→ b  task t1"),
        ("b", "has task t1"),
        ("b", "ended task t1  exited 3, 12 ms"),
        ("b", "ended task t2  timed out, 9 ms"),
        ("b", "2 results received"),
    ];
    assert_eq!(lines, expected);

    // How far one is takes one line, as long as nothing else happens.
    let subject = stage.workspaces[1].to_string();
    for (task, bytes) in [("t3", 5), ("t3", 70), ("t4", 1)] {
        let data = json!({ "task_id": task, "stdout_bytes": bytes, "stderr_bytes": 1 });
        let event = stage.event("task.progress", subject.clone(), data);
        stage.board.fold(&event);
    }
    let lines: Vec<_> = stage.board.lines.iter().skip(5).map(|line| &*line.what).collect();
    assert_eq!(lines, ["wrote 71 bytes in task t3", "wrote 2 bytes in task t4"]);

    let tasks = |stage: &Stage, running, pending| {
        let mut picture = stage.picture(&[&[], &[]]);
        for seen in &mut picture.members {
            (seen.member.agent_status, seen.member.ip) = (None, None);
        }
        let member = &mut picture.members[1].member;
        (member.running_tasks, member.pending_tasks) = (Some(running), Some(pending));
        picture
    };
    let busy = tasks(&stage, 1, 3);
    stage.board.look(busy);
    let b = &stage.board.members[1];
    assert_eq!((b.tasks, &*b.status, b.address.is_some()), (Some((1, 2)), "working", true));
    let idle = tasks(&stage, 0, 0);
    stage.board.look(idle);
    assert_eq!((stage.board.running(), &*stage.board.members[1].status), (0, "ready"));
}

#[test]
fn lines_are_bounded() {
    let mut stage = Stage::new();
    for _ in 0..LINES + 5 {
        let put = stage.put(MessageId::new());
        stage.board.fold(&put);
    }
    assert_eq!((stage.board.lines.len(), stage.inbox()), (LINES, LINES + 5));
}

proptest! {
    /// A picture may have been taken after any of the events that follow its number.
    #[test]
    fn a_picture_that_is_ahead_of_the_events_is_no_other_truth(
        moves in proptest::collection::vec((0usize..6, any::<bool>()), 0..40), ahead in 0usize..40,
    ) {
        let ids: Vec<_> = (0..6).map(|_| MessageId::new()).collect();
        let mut stage = Stage::new();
        // Ids come once and go once, as they do.
        let (mut come, mut gone) = (HashSet::new(), HashSet::new());
        let mut events = Vec::new();
        let mut held = vec![Vec::new()];
        for (at, put) in moves {
            let id = ids[at];
            let now = held.last().expect("one").clone();
            let mut after: Vec<MessageId> = now;
            if put && come.insert(id) {
                events.push(stage.put(id));
                after.push(id);
            } else if !put && come.contains(&id) && gone.insert(id) {
                events.push(stage.taken(&[id]));
                after.retain(|one| *one != id);
            } else {
                continue;
            }
            held.push(after);
        }
        let seen = &held[ahead.min(held.len() - 1)];
        let picture = stage.picture(&[&[], seen]);
        stage.board.begin(TeamSnapshot { seq: 10, picture });
        events.iter().for_each(|event| stage.board.fold(event));
        let truth: HashSet<_> = held.last().expect("one").iter().map(ToString::to_string).collect();
        prop_assert_eq!(stage.board.members[1].inbox.as_ref(), Some(&truth));
    }
}
