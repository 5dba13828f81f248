//! The synchronisation of a member's tasks with its guest: acknowledgements, and room.

use hivekeep_ports::TaskOutcome;
use serde_json::json;

use super::{
    stage::{Stage, eventually, speech},
    tasks::{all, crew, of, receive, task, told},
};
use crate::Options;

async fn until_acknowledged(stage: &Stage) {
    eventually("every result is acknowledged", async || {
        stage.guests.with(|country| {
            let mut tasks = country.guests.values().flat_map(|guest| &guest.tasks);
            tasks.all(|given| given.acknowledged)
        })
    })
    .await;
}

#[tokio::test]
async fn what_is_kept_is_acknowledged_by_the_next_start_at_the_latest() {
    let (stage, _) = crew(Options::default()).await;
    stage.guests.with(|country| country.fails = vec![("acknowledge", "link_lost", false); 1_000]);
    stage.call(task("a", "t", "make")).await;
    assert_eq!(all(&stage, "a", 1).await, of(&[("t", "exited")]));
    let stage = stage.crashed().await;
    stage.guests.with(|country| country.fails.clear());
    until_acknowledged(&stage).await;
    assert_eq!(stage.guests.ran(), ["make"]);
}

#[tokio::test]
async fn a_guest_of_before_that_tells_again_what_is_kept_is_told_so() {
    let (stage, ids) = crew(Options::default()).await;
    stage.call(task("a", "t", "make")).await;
    assert_eq!(all(&stage, "a", 1).await, of(&[("t", "exited")]));
    until_acknowledged(&stage).await;
    stage.guests.guest(ids[1], |guest| guest.tasks[0].acknowledged = false);
    stage.call(task("a", "u", "make")).await;
    assert_eq!(all(&stage, "a", 1).await, of(&[("u", "exited")]), "and not the first again");
    stage.guests.guest(ids[1], |guest| guest.quick = false);
    // Results are read only as long as some are awaited.
    stage.call(task("a", "v", "make")).await;
    until_acknowledged_but(&stage, "v").await;
}

async fn until_acknowledged_but(stage: &Stage, task_id: &str) {
    eventually("all others are acknowledged", async || {
        stage.guests.with(|country| {
            let tasks = country.guests.values().flat_map(|guest| &guest.tasks);
            tasks.filter(|given| given.asked.task_id != task_id).all(|given| given.acknowledged)
        })
    })
    .await;
}

#[tokio::test]
async fn counts_of_before_have_nothing_put_again() {
    let (stage, ids) = crew(Options::default()).await;
    stage.guests.guest(ids[1], |guest| guest.quick = false);
    for n in ["1", "2", "3"] {
        stage.call(task("a", n, n)).await;
    }
    eventually("they are put", async || stage.guests.ran().len() == 3).await;
    stage.guests.with(|country| country.told = true);
    let readings = || stage.guests.with(|country| country.calls["results"]);
    let exited = TaskOutcome::Exited { exit_code: 0 };
    stage.guests.guest(ids[1], |guest| guest.end("1", exited));
    assert_eq!(all(&stage, "a", 1).await, of(&[("1", "exited")]));
    let before = readings();
    stage.guests.blink();
    eventually("it was read again", async || readings() >= before + 2).await;
    assert_eq!(stage.guests.with(|country| country.calls["put"]), 3);
}

#[tokio::test]
async fn results_without_room_stay_in_the_guest() {
    let (stage, ids) = crew(Options { inbox_mb: 1, ..Options::default() }).await;
    let command = "x".repeat(60_000);
    let mut pending = 0;
    for n in 0..10 {
        eventually("its command has room", async || {
            stage.begin(task("a", &n.to_string(), &command)).answer().await.is_ok()
        })
        .await;
    }
    eventually("there is no more room", async || {
        let status = stage.call(json!({ "action": "status", "name": "crew" })).await;
        pending = status["members"][1]["pending_tasks"].as_u64().expect("a number");
        // A third of a MiB.
        status["members"][1]["waiting_results"] == 6 && pending == 4
    })
    .await;
    let unacknowledged = stage.guests.guest(ids[1], |guest| {
        guest.tasks.iter().filter(|given| !given.acknowledged).count() as u64
    });
    assert!(unacknowledged >= pending, "{unacknowledged} of {pending}");
    let before = stage.guests.with(|country| country.calls["put"]);
    let stage = stage.crashed().await;
    // They are put once more, and their guest answers with the results.
    eventually("they are put again", async || {
        stage.guests.with(|country| country.calls["put"]) >= before + 4
    })
    .await;
    // Answered behind everything that is being written.
    stage.call(task("a", "0", &command)).await;
    let status = stage.call(json!({ "action": "status", "name": "crew" })).await;
    assert_eq!(status["members"][1]["waiting_results"], 6);
    let mut ids: Vec<_> = Vec::new();
    while ids.len() < 10 {
        ids.extend(told(&stage.call(receive("a", 60)).await).into_iter().map(|(id, _)| id));
    }
    ids.sort();
    assert_eq!(ids, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(stage.guests.ran().len(), 10);
}

#[tokio::test]
async fn messages_are_received_though_the_tasks_cannot_be_read() {
    let (stage, _) = crew(Options::default()).await;
    stage.call(task("a", "t", "make")).await;
    stage.call(speech("boss", "a", "hello")).await;
    until_acknowledged(&stage).await;
    let streams = stage.journal.streams("desk/").expect("read");
    for stream in streams {
        stage.journal.append(&stream, vec![b"no record".to_vec()]).await.expect("written");
    }
    let stage = stage.crashed().await;
    let mut explicit = receive("a", 0);
    explicit["confirm"] = json!("explicit");
    let got = stage.call(explicit.clone()).await;
    assert_eq!(got["unavailable"]["what"], "daemon_results");
    assert_eq!((&got["count"], &got["messages"][0]["content"]), (&json!(1), &json!("hello")));
    assert_eq!(told(&got), vec![]);
    explicit["confirmed"] = json!([got["messages"][0]["message_id"]]);
    assert_eq!(stage.call(explicit).await["count"], 0);
    assert_eq!(stage.refused(task("a", "u", "make")).await.code, "actor_unavailable");
    // Others have theirs.
    assert_eq!(stage.call(receive("b", 0)).await["daemon_pending_tasks"], 0);
    let status = stage.call(json!({ "action": "status", "name": "crew" })).await;
    assert_eq!(status["members"][1].get("pending_tasks"), None, "nothing is known of them");
}

#[tokio::test]
async fn a_team_may_die_at_any_time() {
    let (stage, _) = crew(Options::default()).await;
    for n in 0..20 {
        let (id, command) = (format!("t{n:02}"), n.to_string());
        if n == 7 {
            stage.kill_teams();
        }
        // Whether it was taken by one that died is not known: it is assigned again.
        eventually("it is assigned", async || {
            stage.begin(task("a", &id, &command)).answer().await.is_ok()
        })
        .await;
        if n == 13 {
            stage.kill_teams();
        }
    }
    let mut results = std::collections::BTreeSet::new();
    eventually("all have a result", async || {
        if let Ok(got) = stage.begin(receive("a", 1)).answer().await {
            results.extend(told(&got));
        }
        results.len() == 20
    })
    .await;
    assert!(results.iter().all(|(_, outcome)| outcome == "exited"), "{results:?}");
    let ran: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    assert_eq!(stage.guests.ran(), ran, "once and in order");
}
