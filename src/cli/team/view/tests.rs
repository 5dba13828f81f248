use hivekeep_kernel::MessageId;
use ratatui::{Terminal, backend::TestBackend};
use serde_json::json;

use super::*;
use crate::cli::team::board::tests::Stage;

fn drawn(board: &Board, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal");
    terminal.draw(|frame| frame.render_widget(board, frame.area())).expect("drawn");
    let text = terminal.backend().to_string();
    // The backend quotes each line.
    let lines = text.lines().map(|line| line.trim_matches('"').trim_end().to_owned() + "\n");
    lines.collect()
}

fn busy() -> Stage {
    let mut stage = Stage::new();
    let (one, two) = (MessageId::new(), MessageId::new());
    let mut picture = stage.picture(&[&[], &[]]);
    picture.members[0].member.agent_status = Some("failed".to_owned());
    picture.members[0].member.reason = Some("its workspace is stopped".to_owned());
    picture.members[0].member.ip = None;
    stage.board.look(picture);
    let stopped = stage.event("workspace.stopped", stage.workspaces[0].to_string(), json!({}));
    // Only the tasks were looked at.
    let mut picture = stage.picture(&[&[], &[]]);
    for seen in &mut picture.members {
        seen.member.agent_status = None;
    }
    let busy = &mut picture.members[1].member;
    (busy.running_tasks, busy.pending_tasks) = (Some(1), Some(3));
    stage.board.look(picture);
    for event in [stopped, stage.put(one), stage.put(two), stage.taken(&[one])] {
        stage.board.fold(&event);
    }
    stage
}

const PICTURE: &str = "\
team crew  ready  2 members, 1 message waits, 1 task runs
MEMBER  ROLE  STATE                             ADDRESS   INBOX  RUNNING  QUEUED  WORKSPACE
a       hand  failed: its workspace is stopped  -         0      ?        ?       crew-hand-0000
b       hand  working                           10.0.0.1  1      1        2       crew-hand-0001
────────────────────────────────────────────────────────────────────────────────────────────────────
00:00:11  a     workspace.stopped
00:00:12  a     → b  text, 12 bytes
00:00:13  a     → b  text, 12 bytes
00:00:14  b     took a message
";

#[test]
fn a_board_is_drawn() {
    let stage = busy();
    assert_eq!(drawn(&stage.board, 100, 10), format!("{PICTURE}q leaves\n"));
    let printed = text(&stage.board);
    assert_eq!(printed.replace(&"─".repeat(120), &"─".repeat(100)), PICTURE);
}

#[test]
fn the_newest_lines_are_the_ones_that_are_seen_and_trouble_is_told() {
    let mut stage = busy();
    stage.board.away = Some("no daemon runs".to_owned());
    let picture = drawn(&stage.board, 60, 7);
    let lines: Vec<_> = picture.lines().collect();
    assert_eq!((lines[5], lines[6]), ("00:00:14  b     took a message", "away: no daemon runs"));
}

#[test]
fn no_size_is_too_small_and_no_text_reaches_the_terminal_as_a_command() {
    let mut stage = busy();
    for (columns, rows) in [(1, 1), (3, 2), (10, 4), (20, 6), (500, 200)] {
        drawn(&stage.board, columns, rows);
    }
    let mut evil = stage.put(MessageId::new());
    evil.data["message_type"] = json!("\u{1b}[2J\u{7}boo");
    stage.board.fold(&evil);
    let printed = text(&stage.board);
    assert!(printed.contains("boo") && !printed.contains(['\u{1b}', '\u{7}']), "{printed:?}");
}
