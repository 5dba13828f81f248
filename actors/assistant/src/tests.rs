//! Scenes of an editor over fakes.

mod fakes;

use std::{sync::Arc, time::Duration};

use chrono::{TimeDelta, Utc};
use hivekeep_kernel::SessionId;
use hivekeep_ports::{ChatRole, ChatStatus};
use serde_json::{Value, json};

use fakes::{Daemon, Fake, LOST, message, process};

/// A fake daemon with these answers.
fn daemon(answers: Daemon) -> Arc<Fake> {
    let fake = Fake::default();
    *fake.daemon.lock().expect("no panic") = answers;
    Arc::new(fake)
}

#[tokio::test]
async fn a_chat_is_opened_written_to_and_read_by_its_own_user_alone() {
    let fake = daemon(Daemon::default());
    let without = fake.clone().rig(false).await;
    let refused = without.call("ide_session_create", json!({ "name": "a" })).await;
    assert_eq!(refused.expect_err("nobody offers chats").code, "assistant_not_configured");

    let rig = fake.clone().rig(true).await;
    let opened = rig.call("ide_session_create", json!({ "name": "fix it" })).await.expect("opened");
    let id = opened["session"]["id"].as_str().expect("an id at once").to_owned();
    assert_eq!(opened["session"]["status"], "waiting");
    let text = json!({ "sessionId": id, "message": "hello" });
    let sent = rig.call("ide_chat_send", text.clone()).await.expect("sent");
    assert_eq!((&sent["sent"], &sent["sessionId"]), (&json!(true), &json!(id)));
    fake.chat(&id, |chat, messages| {
        chat.status = ChatStatus::Waiting;
        messages.push(message(ChatRole::Assistant, "done", Utc::now()));
    });
    let read = async |limit: Value| {
        let read = json!({ "sessionId": id, "limit": limit });
        rig.call("ide_chat_history", read).await.expect("history")["messages"].clone()
    };
    let both = read(json!(50)).await;
    assert_eq!(
        both[0],
        json!({ "role": "user", "content": "hello", "timestamp": sent["timestamp"] })
    );
    assert_eq!(read(json!(1)).await, json!([both[1]]), "the newest");
    let plan = rig.call("ide_plan_status", json!({ "sessionId": id })).await.expect("a plan");
    let steps = json!([{ "name": "fs.read", "status": "running" }]);
    assert_eq!(plan, json!({ "sessionId": id, "status": "waiting", "steps": steps }));

    rig.call("ide_session_create", json!({ "name": "second" })).await.expect("opened");
    let listed = rig.call("ide_session_list", json!({})).await.expect("listed");
    let names: Vec<_> =
        listed["sessions"].as_array().expect("rows").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["second", "fix it"]);
    assert_eq!(listed["sessions"][1]["createdAt"], opened["session"]["createdAt"]);

    let stranger = SessionId::new();
    let as_stranger = |tool: &str, args: Value| {
        rig.begin_as(stranger, tool, args, Duration::from_secs(60)).answer()
    };
    for (tool, args) in [
        ("ide_chat_send", text),
        ("ide_chat_history", json!({ "sessionId": id })),
        ("ide_plan_status", json!({ "sessionId": id })),
    ] {
        let of_another = as_stranger(tool, args).await.expect_err(tool);
        assert_eq!(of_another.code, "chat_not_found", "{tool}");
    }
    let theirs = as_stranger("ide_session_list", json!({})).await.expect("listed");
    assert_eq!(theirs, json!({ "sessions": [] }));
    assert_eq!(read(json!(50)).await.as_array().map(Vec::len), Some(2), "nothing was added");
}

#[tokio::test]
async fn builds_are_processes_with_their_outcomes_and_outputs() {
    let at = Utc::now() - TimeDelta::minutes(10);
    let lines = |name: &str| (0..9).map(|line| format!("{name} {line}\n")).collect::<String>();
    let fake = daemon(Daemon {
        processes: vec![
            process(
                "a",
                "make",
                at,
                &json!({ "status": "exited", "exitCode": 0, "dir": "/srv/lib/" }),
            ),
            process("b", "cargo test", at, &json!({ "status": "exited", "exitCode": 101 })),
            process("c", "cargo run", at, &json!({})),
            process("d", "cargo build", at, &json!({ "status": "killed", "signal": 15 })),
            process("e", "cargo build", at, &json!({ "status": "killed", "signal": 11 })),
            process("f", "cargo build", at, &json!({ "status": "interrupted" })),
            process(
                "g",
                "cargo build",
                at,
                &json!({ "status": "unknown", "reason": "it is parked" }),
            ),
            process("h", "/usr/bin/cargo build -r", at, &json!({})),
        ],
        output: [lines("out"), lines("error")],
        ..Daemon::default()
    });
    let rig = fake.clone().rig(true).await;
    let listed = rig.call("ide_build_list", json!({})).await.expect("listed");
    let rows = listed["builds"].as_array().expect("rows");
    let outcomes: Vec<_> =
        rows.iter().map(|row| (&row["id"], &row["status"], &row["duration"])).collect();
    let took = json!("90.0s");
    assert_eq!(
        json!(outcomes),
        json!([
            ["h", "running", null],
            ["g", "unknown", null],
            ["f", "interrupted", null],
            ["e", "failed", took],
            ["d", "cancelled", took],
            ["b", "failed", took],
            ["a", "success", took],
        ])
    );
    let of_lib = rig.call("ide_build_list", json!({ "repo": "lib" })).await.expect("listed");
    let a = json!({
        "id": "a", "repo": "lib", "branch": null, "status": "success", "duration": took,
        "startedAt": at, "command": "make",
    });
    assert_eq!(of_lib, json!({ "builds": [a] }));
    let shown = rig.call("ide_build_status", json!({ "buildId": "a" })).await.expect("shown");
    assert_eq!(shown, json!({ "build": a }));
    let newest = rig.call("ide_build_list", json!({ "limit": 1 })).await.expect("listed");
    assert_eq!(newest["builds"][0]["command"], "/usr/bin/cargo build -r");
    for (tool, id) in [("ide_build_status", "c"), ("ide_build_logs", "c"), ("ide_build_logs", "x")]
    {
        let refused = rig.call(tool, json!({ "buildId": id })).await.expect_err("not a build");
        assert_eq!(refused.code, "build_not_found", "{tool} {id}");
    }

    let log = rig.call("ide_build_logs", json!({ "buildId": "h" })).await.expect("a log");
    let all = lines("out")[LOST..].to_owned() + &lines("error");
    assert_eq!(log["lines"], json!(all.lines().collect::<Vec<_>>()));
    assert_eq!(log["lostBytes"], json!(LOST));
    for (tail, last) in [
        (1, json!(["error 8"])),
        (3, json!(["out 8", "error 7", "error 8"])),
        (16, json!(all.lines().skip(1).take(8).chain(all.lines().skip(10)).collect::<Vec<_>>())),
    ] {
        let log = json!({ "buildId": "h", "tail": tail });
        let log = rig.call("ide_build_logs", log).await.expect("a log");
        assert_eq!(log["lines"], last, "{tail}");
    }
    let asked = &fake.daemon.lock().expect("no panic").sessions;
    assert!(asked.iter().all(|session| *session == rig.session), "on the caller's behalf alone");
}

#[tokio::test]
async fn the_dashboard_counts_what_is_recorded_and_says_what_it_cannot_know() {
    let now = Utc::now();
    let ago = |minutes: i64| now - TimeDelta::minutes(minutes);
    let exited = |code: i32| json!({ "status": "exited", "exitCode": code });
    let fake = daemon(Daemon {
        processes: vec![
            process("old", "make", ago(3 * 24 * 60), &exited(1)),
            process("a", "make", ago(300), &exited(0)),
            process("serve", "python3 -m http.server", ago(200), &json!({})),
            process("b", "make", ago(30), &json!({ "status": "killed", "signal": 9 })),
        ],
        events: vec![
            json!({ "at": ago(1), "kind": "call.finished", "subject": "call_1", "seq": 3,
                "data": { "tool": "bash", "outcome": "command_timed_out", "door": "mcp" } }),
            json!({ "at": ago(2), "kind": "call.finished", "subject": "call_2", "seq": 2,
                "data": { "tool": "process_list", "outcome": "ok", "door": "internal" } }),
            json!({ "at": ago(29), "kind": "session.opened", "subject": "ses_1", "seq": 1, "data": {} }),
        ],
        ..Daemon::default()
    });
    let bare = fake.clone().rig(false).await;
    let overview = bare.call("ide_dashboard_overview", json!({})).await.expect("numbers");
    let none = json!({
        "repos": null, "services": 1, "activeSessions": 0, "recentBuilds": 2, "bridgeOnline": false,
    });
    assert_eq!(overview, json!({ "overview": none }));

    let rig = fake.clone().rig(true).await;
    for name in ["over", "open"] {
        rig.call("ide_session_create", json!({ "name": name })).await.expect("opened");
    }
    fake.chat("exec_0", |chat, messages| {
        chat.status = ChatStatus::Completed;
        chat.created_at = ago(120);
        messages.push(message(ChatRole::User, "hello", ago(110)));
        messages.push(message(ChatRole::Assistant, "hello", ago(10)));
    });
    {
        let mut daemon = fake.daemon.lock().expect("no panic");
        (daemon.repositories, daemon.connected) = (Some(4), true);
    }
    let overview = rig.call("ide_dashboard_overview", json!({})).await.expect("numbers");
    let some = json!({
        "repos": 4, "services": 1, "activeSessions": 1, "recentBuilds": 2, "bridgeOnline": true,
    });
    assert_eq!(overview, json!({ "overview": some }));

    let metrics = async |asked: Value| {
        let read = rig.call("ide_dashboard_metrics", asked).await.expect("numbers");
        let of = |key: &str| read["metrics"][key].clone();
        let builds =
            ["buildsTotal", "buildsSuccess", "buildsFailed", "avgBuildTime", "successRate"];
        let chats = ["agentSessions", "messagesTotal", "complete"];
        (read["period"].clone(), json!(builds.map(of)), json!(chats.map(of)))
    };
    let expected = |period: &str, builds: Value, chats: Value| (json!(period), builds, chats);
    assert_eq!(
        metrics(json!({ "period": "1h" })).await,
        expected("1h", json!([1, 0, 0, null, null]), json!([1, 1, true]))
    );
    let day = expected("24h", json!([2, 1, 0, "90.0s", 1.0]), json!([2, 2, true]));
    assert_eq!(metrics(json!({ "period": "24h" })).await, day);
    assert_eq!(metrics(json!({})).await, day);
    let week = expected("7d", json!([3, 1, 1, "90.0s", 0.5]), json!([2, 2, true]));
    assert_eq!(metrics(json!({ "period": "7d" })).await, week);
    let refused = rig.call("ide_dashboard_metrics", json!({ "period": "30d" })).await;
    assert_eq!(refused.expect_err("another period").code, "invalid_input");

    let read = rig.call("ide_dashboard_activity", json!({ "limit": 6 })).await.expect("events");
    let rows = read["events"].as_array().expect("rows");
    let told: Vec<_> = rows.iter().map(|row| (&row["type"], &row["message"])).collect();
    assert_eq!(
        json!(told),
        json!([
            ["chat.opened", "chat `open` was opened"],
            ["call.finished", "bash was called: command_timed_out"],
            ["build.ended", "`make` in `app` was cancelled after 90.0s"],
            ["session.opened", "session.opened of ses_1"],
            ["build.started", "`make` in `app` was started"],
            ["chat.opened", "chat `over` was opened"],
        ])
    );

    // As many that ended as are kept: what was before them may be forgotten.
    let more = (0..99).map(|it| process(&format!("p{it}"), "true", ago(50), &exited(0)));
    fake.daemon.lock().expect("no panic").processes.extend(more);
    assert_eq!(metrics(json!({ "period": "1h" })).await.2[2], json!(false));
    fake.daemon.lock().expect("no panic").processes[4]["startedAt"] = json!(ago(61));
    assert_eq!(metrics(json!({ "period": "1h" })).await.2[2], json!(true));
}

#[tokio::test]
async fn pages_of_the_user_are_sent_to_a_path_of_theirs_or_nobody_is() {
    let fake = daemon(Daemon::default());
    let go = json!({ "path": "/runs/exec_1?tab=log" });
    let without = fake.clone().rig(false).await;
    assert_eq!(
        without.call("navigate", go.clone()).await.expect_err("no hub").code,
        "no_page_open"
    );
    let rig = fake.clone().rig(true).await;
    assert_eq!(rig.call("navigate", go.clone()).await.expect_err("no page").code, "no_page_open");
    fake.daemon.lock().expect("no panic").pages = 2;
    let told = rig.call("navigate", go.clone()).await.expect("told");
    assert_eq!(told, json!({ "path": go["path"], "pages": 2 }));
    fake.daemon.lock().expect("no panic").visited.clear();
    let foreign = rig.call("navigate", json!({ "path": "//evil.example" })).await;
    assert_eq!(foreign.expect_err("another host").code, "invalid_input");
    assert!(fake.daemon.lock().expect("no panic").visited.is_empty());
}
