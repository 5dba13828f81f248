//! Tasks of members, against guests that fail, blink, repeat and lie.

use hivekeep_kernel::WorkspaceId;
use hivekeep_ports::TaskOutcome;
use serde_json::{Value, json};

use super::{
    guests,
    stage::{Stage, eventually, speech},
};
use crate::Options;

pub(super) fn task(to: &str, id: &str, command: &str) -> Value {
    let mut message = speech("boss", to, &json!({ "task_id": id, "command": command }).to_string());
    message["message_type"] = json!("task_assignment");
    message
}

pub(super) fn receive(agent: &str, wait_secs: u64) -> Value {
    json!({ "action": "receive", "name": "crew", "agent": agent, "wait_secs": wait_secs })
}

pub(super) async fn crew(options: Options) -> (Stage, Vec<WorkspaceId>) {
    let stage = Stage::with(options).await;
    let made = stage.create("crew", &["boss", "a", "b"]).await;
    let ids = made["member_workspace_ids"].as_array().expect("ids").iter();
    let ids = ids.map(|id| id.as_str().expect("an id").parse().expect("an id")).collect();
    (stage, ids)
}

pub(super) fn told(received: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let results = received["daemon_results"].as_array().expect("results").iter();
    results.map(|result| (text(&result["task_id"]), text(&result["outcome"]))).collect()
}

pub(super) fn of(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(id, outcome)| ((*id).to_owned(), (*outcome).to_owned())).collect()
}

/// All results, as they come.
pub(super) async fn all(stage: &Stage, agent: &str, count: usize) -> Vec<(String, String)> {
    let mut results = Vec::new();
    while results.len() < count {
        let got = stage.call(receive(agent, 60)).await;
        assert_eq!(got["count"], 0, "a task is not a message: {got}");
        results.extend(told(&got));
    }
    results
}

#[tokio::test]
async fn a_task_is_run_and_its_result_received() {
    let (stage, _) = crew(Options::default()).await;
    let sent = stage.call(task("a", "t1", "make")).await;
    assert_eq!((&sent["status"], &sent["delivered_to"]), (&json!("delivered"), &json!(["a"])));
    assert_eq!(sent["tasks"], json!([{ "to": "a", "state": "queued", "repeat": false }]));
    let got = stage.call(receive("a", 60)).await;
    let result = &got["daemon_results"][0];
    for (field, value) in [
        ("task_id", json!("t1")),
        ("success", json!(true)),
        ("exit_code", json!(0)),
        ("stdout", json!("did make")),
        ("stderr", json!("")),
        ("elapsed_secs", json!(1)),
        ("source_message_id", sent["message_id"].clone()),
        ("outcome", json!("exited")),
        ("redelivered", json!(false)),
    ] {
        assert_eq!(result[field], value, "{field} of {result}");
    }
    assert_eq!((&got["daemon_pending_tasks"], &got["count"]), (&json!(0), &json!(0)));
    let empty = stage.call(receive("a", 0)).await;
    assert_eq!((told(&empty), &empty["daemon_pending_tasks"]), (vec![], &json!(0)));
    assert_eq!(stage.guests.ran(), ["make"]);
}

#[tokio::test]
async fn a_repeat_runs_nothing_and_is_told_what_became_of_the_task() {
    let (stage, _) = crew(Options::default()).await;
    let first = stage.call(task("a", "t", "make")).await;
    assert_eq!(all(&stage, "a", 1).await, of(&[("t", "exited")]));
    for round in 0..2 {
        let again = stage.call(task("a", "t", "make")).await;
        let told = &again["tasks"][0];
        assert_eq!(
            (&told["state"], &told["repeat"]),
            (&json!("received"), &json!(true)),
            "{round}"
        );
        assert_eq!(told["result"]["source_message_id"], first["message_id"]);
        assert_eq!(told["result"]["stdout"], "did make");
        let differs = stage.refused(task("a", "t", "break")).await;
        assert_eq!((differs.code.as_ref(), differs.retryable), ("task_differs", false));
    }
    let stage = stage.crashed().await;
    let again = stage.call(task("a", "t", "make")).await;
    assert_eq!(again["tasks"][0]["repeat"], true, "remembered over a crash");
    assert_eq!(stage.call(receive("a", 0)).await["daemon_results"], json!([]));
    assert_eq!(stage.guests.ran(), ["make"]);
}

#[tokio::test]
async fn a_task_for_all_is_one_of_each() {
    let (stage, _) = crew(Options::default()).await;
    stage.call(task("a", "t", "other")).await;
    let sent = stage.call(task("*", "t", "make")).await;
    assert_eq!(
        (&sent["status"], &sent["delivered_to"]),
        (&json!("partly_delivered"), &json!(["b"]))
    );
    assert_eq!(sent["undelivered"][0]["code"], "task_differs");
    assert_eq!(all(&stage, "a", 1).await, of(&[("t", "exited")]));
    assert_eq!(all(&stage, "b", 1).await, of(&[("t", "exited")]));
    let again = stage.call(task("*", "t", "make")).await;
    assert_eq!(
        again["tasks"],
        json!([{ "to": "b", "state": "received", "repeat": true }]),
        "of many, no results are told"
    );
}

#[tokio::test]
async fn a_malformed_task_is_an_answer_and_nothing_is_assigned() {
    let (stage, _) = crew(Options::default()).await;
    for (content, field) in [
        ("{", "content"),
        (r#"{"task_id":"t"}"#, "command"),
        (r#"{"task_id":"t","command":"x","env":{"A B":"1"}}"#, "env.A B"),
    ] {
        let mut message = speech("boss", "a", content);
        message["message_type"] = json!("task_assignment");
        let error = stage.refused(message).await;
        assert_eq!((error.code.as_ref(), &error.details["field"]), ("invalid_task", &json!(field)));
    }
    // What only the guest's side knows becomes its result.
    stage.guests.with(|country| country.fails.push(("put", "invalid_input", false)));
    stage.call(task("a", "bad", "x")).await;
    let got = stage.call(receive("a", 60)).await;
    let result = &got["daemon_results"][0];
    assert_eq!((&result["outcome"], &result["code"]), (&json!("invalid"), &json!("invalid_input")));
    assert_eq!((&result["success"], &result["exit_code"]), (&json!(false), &json!(-1)));
    assert_eq!(stage.guests.ran(), [""; 0]);
}

#[tokio::test]
async fn what_fails_on_the_way_is_done_again_and_the_task_is_run_once() {
    let (stage, _) = crew(Options::default()).await;
    stage.guests.with(|country| {
        country.fails = vec![
            ("put", "guest_unreachable", false),
            ("put", "link_lost", true),
            ("put", "workspace_state", false),
            ("results", "link_lost", false),
            ("results", "guest_misbehaves", false),
            ("acknowledge", "link_lost", false),
            ("acknowledge", "link_lost", true),
            ("hints", "actor_unavailable", false),
        ];
    });
    for n in 0..5 {
        stage.call(task("a", &format!("t{n}"), &n.to_string())).await;
    }
    let mut got = all(&stage, "a", 5).await;
    got.sort();
    assert_eq!(got, of(&[0, 1, 2, 3, 4].map(|n| (["t0", "t1", "t2", "t3", "t4"][n], "exited"))));
    assert_eq!(stage.guests.ran(), ["0", "1", "2", "3", "4"], "once and in order");
    eventually("every result is acknowledged", async || {
        stage.guests.with(|country| {
            let mut tasks = country.guests.values().flat_map(|guest| &guest.tasks);
            tasks.all(|given| given.acknowledged)
        })
    })
    .await;
}

#[tokio::test]
async fn the_daemon_may_die_at_any_time() {
    let (mut stage, ids) = crew(Options::default()).await;
    stage.guests.with(|country| country.down = Some("workspace_state"));
    for n in 0..3 {
        stage.call(task("a", &format!("t{n}"), &n.to_string())).await;
    }
    stage = stage.crashed().await;
    let got = stage.call(receive("a", 0)).await;
    assert_eq!((told(&got), &got["daemon_pending_tasks"]), (vec![], &json!(3)));
    stage.guests.guest(ids[1], |guest| guest.quick = false);
    stage.guests.with(|country| country.down = None);
    eventually("they are put", async || stage.guests.ran().len() == 3).await;
    stage = stage.crashed().await;
    stage.guests.guest(ids[1], |guest| {
        guest.end("t1", TaskOutcome::Interrupted);
        guest.end("t0", TaskOutcome::Signalled { signal: 9 });
    });
    let mut explicit = receive("a", 60);
    explicit["confirm"] = json!("explicit");
    let mut first = Vec::new();
    eventually("both are told", async || {
        first = told(&stage.call(explicit.clone()).await);
        first.len() == 2
    })
    .await;
    let mut sorted = first.clone();
    sorted.sort();
    assert_eq!(sorted, of(&[("t0", "signalled"), ("t1", "interrupted")]));
    stage = stage.crashed().await;
    let again = stage.call(explicit.clone()).await;
    assert_eq!(told(&again), first, "the same in the same order");
    let results = again["daemon_results"].as_array().expect("results");
    assert!(results.iter().all(|result| result["redelivered"] == true));
    let of_task = |id: &str| results.iter().find(|result| result["task_id"] == id).expect("told");
    assert_eq!(of_task("t0")["exit_code"], 137);
    explicit["confirmed"] = json!([of_task("t1")["source_message_id"]]);
    let rest = stage.call(explicit).await;
    assert_eq!((told(&rest), &rest["confirmed"]), (of(&[("t0", "signalled")]), &json!(1)));
    stage = stage.crashed().await;
    assert_eq!(told(&stage.call(receive("a", 0)).await), of(&[("t0", "signalled")]));
    stage.guests.guest(ids[1], |guest| guest.end("t2", TaskOutcome::TimedOut));
    assert_eq!(all(&stage, "a", 1).await, of(&[("t2", "timed_out")]));
    assert_eq!(stage.guests.ran(), ["0", "1", "2"]);
}

#[tokio::test]
async fn a_guest_of_before_gets_its_tasks_again() {
    let (stage, ids) = crew(Options::default()).await;
    stage.guests.guest(ids[1], |guest| guest.quick = false);
    for n in ["1", "2"] {
        stage.call(task("a", n, n)).await;
    }
    eventually("they are put", async || stage.guests.ran().len() == 2).await;
    // A snapshot of before is restored: that is another actor with other hints.
    stage.guests.guest(ids[1], |guest| {
        guest.tasks.pop();
        guest.quick = true;
    });
    stage.guests.blink();
    assert_eq!(all(&stage, "a", 1).await, of(&[("2", "exited")]));
    assert_eq!(stage.guests.ran(), ["1", "2", "2"]);
    stage.guests.guest(ids[1], |guest| guest.end("1", TaskOutcome::Cancelled));
    assert_eq!(all(&stage, "a", 1).await, of(&[("1", "cancelled")]));
}

#[tokio::test]
async fn what_a_guest_makes_up_is_nobodys_result() {
    let (stage, ids) = crew(Options::default()).await;
    stage.guests.guest(ids[1], |guest| guest.quick = false);
    stage.call(task("a", "t", "make")).await;
    eventually("it is put", async || stage.guests.ran().len() == 1).await;
    let asked = stage.guests.guest(ids[1], |guest| guest.tasks[0].asked.clone());
    let mut lie = guests::result(&asked, 7, TaskOutcome::Exited { exit_code: 0 });
    lie.task_id = "never sent".to_owned();
    let mut other = lie.clone();
    other.message_id = "msg_1".to_owned();
    stage.guests.with(|country| country.lies = vec![lie, other]);
    stage.guests.guest(ids[1], |guest| guest.end("t", TaskOutcome::Exited { exit_code: 3 }));
    let got = stage.call(receive("a", 60)).await;
    assert_eq!(told(&got), of(&[("t", "exited")]));
    assert_eq!(got["daemon_results"][0]["exit_code"], 3);
}

#[tokio::test]
async fn the_tasks_of_a_workspace_that_is_gone_are_lost_and_that_is_told() {
    let (stage, ids) = crew(Options::default()).await;
    stage.guests.guest(ids[1], |guest| guest.quick = false);
    stage.call(task("a", "t", "make")).await;
    eventually("it is put", async || stage.guests.ran().len() == 1).await;
    // Not found, but listed: it is being taken up at a start.
    stage.guests.with(|country| country.gone.insert(ids[1]));
    stage.guests.blink();
    stage.call(task("a", "u", "make")).await;
    eventually("it was looked for", async || {
        stage.guests.with(|country| country.calls["hints"] > 4)
    })
    .await;
    assert_eq!(stage.call(receive("a", 0)).await["daemon_pending_tasks"], 2);
    let status = stage.call(json!({ "action": "status", "name": "crew" })).await;
    let member = &status["members"][1];
    assert_eq!((&member["pending_tasks"], &member["running_tasks"]), (&json!(2), &json!(0)));
    assert!(member["tasks_held_up"].as_str().expect("why").contains("workspace_not_found"));
    stage.fake.with(|world| world.workspaces.retain(|_, one| one.id != ids[1]));
    let mut lost = all(&stage, "a", 2).await;
    lost.sort();
    assert_eq!(lost, of(&[("t", "lost"), ("u", "lost")]));
}

#[tokio::test]
async fn the_receiver_decides_how_many_and_a_full_desk_refuses() {
    let options = Options { inbox_messages: 4, ..Options::default() };
    let (stage, ids) = crew(options).await;
    for n in ["1", "2", "3"] {
        stage.call(task("a", n, n)).await;
    }
    eventually("all have ended", async || {
        let mut look = receive("a", 0);
        look["confirm"] = json!("explicit");
        told(&stage.call(look).await).len() == 3
    })
    .await;
    stage.guests.guest(ids[1], |guest| guest.quick = false);
    stage.call(task("a", "4", "4")).await;
    let full = stage.refused(task("a", "5", "5")).await;
    assert_eq!((full.code.as_ref(), full.retryable), ("inbox_full", true));
    stage.call(speech("boss", "a", "hello")).await;
    let mut two = receive("a", 0);
    two["limit"] = json!(2);
    let got = stage.call(two).await;
    assert_eq!(told(&got), of(&[("1", "exited"), ("2", "exited")]));
    assert_eq!((&got["count"], &got["daemon_results_waiting"]), (&json!(1), &json!(1)));
    assert_eq!(got["daemon_pending_tasks"], 1);
    eventually("it works", async || {
        let status = stage.call(json!({ "action": "status", "name": "crew" })).await;
        status["members"][1]["agent_status"] == "working"
    })
    .await;
    eventually("there is room again", async || {
        stage.begin(task("a", "5", "5")).answer().await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_waiting_receiver_is_woken_by_either() {
    let (stage, ids) = crew(Options::default()).await;
    stage.guests.guest(ids[1], |guest| guest.quick = false);
    stage.call(task("a", "t", "make")).await;
    eventually("it is put", async || stage.guests.ran().len() == 1).await;
    let waiting = stage.begin(receive("a", 60));
    stage.guests.guest(ids[1], |guest| guest.end("t", TaskOutcome::Exited { exit_code: 0 }));
    let got = waiting.answer().await.expect("woken");
    assert_eq!((told(&got), &got["count"]), (of(&[("t", "exited")]), &json!(0)));
    let waiting = stage.begin(receive("a", 60));
    stage.call(speech("boss", "a", "hello")).await;
    assert_eq!(waiting.answer().await.expect("woken")["count"], 1);
    let (cancelled, waiting) = (stage.begin(receive("a", 60)), stage.begin(receive("a", 60)));
    cancelled.cancel.cancel();
    assert_eq!(cancelled.answer().await.expect_err("cancelled").code, "cancelled");
    stage.call(task("a", "u", "make")).await;
    eventually("it is put", async || stage.guests.ran().len() == 2).await;
    stage.guests.guest(ids[1], |guest| guest.end("u", TaskOutcome::Exited { exit_code: 0 }));
    let got = waiting.answer().await.expect("woken");
    assert_eq!(got["daemon_results"][0]["redelivered"], false, "no other was given it before");
}

#[tokio::test]
async fn many_tasks_are_folded_and_none_is_lost() {
    let (mut stage, _) = crew(Options { message_burst: 2_000, ..Options::default() }).await;
    let mut results = Vec::new();
    for round in 0..5 {
        let many: Vec<_> =
            (0..60).map(|n| stage.begin(task("a", &format!("{round}-{n}"), "x"))).collect();
        for one in many {
            one.answer().await.expect("assigned");
        }
        let mut some = receive("a", 60);
        some["limit"] = json!(50);
        results.extend(told(&stage.call(some).await));
    }
    eventually("one is folded", async || {
        let mut streams = stage.journal.streams("desk/").expect("read").into_iter();
        streams.any(|stream| stage.journal.replay(&stream).expect("read").snapshot.is_some())
    })
    .await;
    // That the last were taken may not be written yet: then they come again.
    stage = stage.crashed().await;
    let mut ids: std::collections::BTreeSet<_> = results.into_iter().collect();
    while ids.len() < 300 {
        ids.extend(told(&stage.call(receive("a", 60)).await));
    }
    assert_eq!(stage.guests.ran().len(), 300);
    assert_eq!(stage.call(task("a", "0-0", "x")).await["tasks"][0]["repeat"], true);
    stage.call(json!({ "action": "destroy", "name": "crew" })).await;
    assert_eq!(stage.journal.streams("desk/").expect("read"), []);
}

#[tokio::test]
async fn a_guest_that_knows_the_id_answers_for_it() {
    let (stage, ids) = crew(Options::default()).await;
    stage.guests.with(|country| country.down = Some("workspace_state"));
    let mut messages = Vec::new();
    for id in ["same", "other", "ours"] {
        let sent = stage.call(task("a", id, "make")).await;
        messages.push(sent["message_id"].as_str().expect("an id").to_owned());
    }
    // Of before those that are remembered here; the last is the one that was assigned just now.
    let known =
        [("same", "make", "old"), ("other", "break", "old"), ("ours", "break", &messages[2])];
    stage.guests.guest(ids[1], |guest| {
        for (id, command, message) in known {
            guest.knows(id, command, message);
        }
    });
    stage.guests.with(|country| country.down = None);
    let mut results = std::collections::BTreeMap::new();
    while results.len() < 3 {
        let got = stage.call(receive("a", 60)).await;
        for result in got["daemon_results"].as_array().expect("results") {
            results.insert(result["task_id"].as_str().expect("an id").to_owned(), result.clone());
        }
    }
    assert_eq!(results["same"]["stdout"], "did make");
    assert_eq!(results["same"]["source_message_id"], messages[0].as_str());
    assert_eq!(
        (&results["other"]["outcome"], &results["other"]["code"]),
        (&json!("invalid"), &json!("task_differs"))
    );
    assert_eq!(results["ours"]["outcome"], "exited", "whatever the guest thinks of it");
    assert_eq!(stage.guests.ran(), [""; 0]);
}

#[tokio::test]
async fn what_happens_to_a_task_is_told_as_events() {
    let (stage, _) = crew(Options::default()).await;
    let sent = stage.call(task("a", "t", "secret")).await;
    stage.call(receive("a", 60)).await;
    let mut events = stage.journal.events().subscribe(Some(hivekeep_store::Seq::FIRST), 64);
    let mut seen = std::collections::BTreeMap::new();
    while seen.len() < 4 {
        if let hivekeep_store::SubscriptionItem::Event(event) = events.next().await.expect("runs")
            && event.kind.starts_with("task.")
        {
            assert!(!event.data.to_string().contains("secret"), "{}", event.data);
            assert_eq!(event.data["member"], "a");
            seen.insert(event.kind.clone(), event.data.clone());
        }
    }
    let kinds: Vec<_> = seen.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["task.assigned", "task.ended", "task.put", "task.taken"]);
    assert_eq!(seen["task.put"]["message_id"], sent["message_id"]);
    let ended = &seen["task.ended"];
    assert_eq!((&ended["outcome"], &ended["exit_code"]), (&json!("exited"), &json!(0)));
}
