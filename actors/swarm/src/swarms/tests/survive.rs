//! What is cancelled, runs out of time, fails to be removed or dies.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::SwarmId;
use hivekeep_runtime::log::load;
use serde_json::{Value, json};

use super::stage::{Stage, eventually, swarm};
use crate::swarm::state::{Record, SwarmState, stream};

const TWO: [(&str, &str); 2] = [("a", "ok"), ("b", "ok")];

/// Each task took its effect once, and nothing is left.
fn once(stage: &Stage, tasks: usize) {
    let effects = stage.fake.with(|world| world.effects.clone());
    assert!(effects.len() == tasks && effects.values().all(|count| *count == 1), "{effects:?}");
    assert!(stage.fake.forks().is_empty(), "{:?}", stage.fake.forks());
}

#[tokio::test]
async fn a_cancelled_call_ends_the_swarm_and_removes_its_forks() {
    let stage = Stage::new().await;
    let mut args = swarm(&[("a", "hang"), ("b", "hang"), ("c", "hang")]);
    args["max_parallel"] = json!(2);
    args["merge_strategy"] = json!("sequential");
    let running = stage.begin(args);
    eventually("two run", async || stage.fake.with(|world| world.effects.len()) == 2).await;
    running.cancel.cancel();
    let error = running.answer().await.expect_err("cancelled");
    assert_eq!(error.code, "cancelled");
    assert!(stage.fake.forks().is_empty() && stage.fake.with(|world| world.merges.is_empty()));
    let done = stage.over(&error.details["swarm_id"]).await;
    assert_eq!(done["state"], "cancelled");
    let outcomes: Vec<_> =
        done["tasks"].as_array().expect("rows").iter().map(|row| &row["outcome"]).collect();
    assert_eq!(outcomes, ["cancelled"; 3]);
    assert_eq!(stage.fake.with(|world| world.begun), 2, "the third was not forked for it");
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_forks_waits_for_the_forks() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.slow = Duration::from_millis(200));
    let running = stage.begin(swarm(&TWO));
    eventually("it forks", async || stage.fake.with(|world| world.forking) > 0).await;
    running.cancel.cancel();
    running.answer().await.expect_err("cancelled");
    assert_eq!(stage.fake.with(|world| world.forking), 0, "nothing comes to light afterwards");
    assert!(stage.fake.forks().is_empty());
}

#[tokio::test]
async fn kept_forks_have_their_tasks_cancelled() {
    let stage = Stage::new().await;
    let mut args = swarm(&[("a", "hang")]);
    args["cleanup"] = json!(false);
    let running = stage.begin(args);
    eventually("it runs", async || stage.fake.with(|world| world.effects.len()) == 1).await;
    let id = stage.only().await;
    let told = stage.call("swarm_cancel", json!({ "swarm_id": id })).await.expect("told");
    assert_eq!(told["cancelled"], true);
    assert_eq!(running.answer().await.expect_err("cancelled").code, "cancelled");
    let done = stage.over(&id).await;
    assert_eq!((&done["tasks"][0]["outcome"], stage.fake.forks().len()), (&json!("cancelled"), 1));
}

#[tokio::test]
async fn the_end_of_the_calls_time_is_not_the_swarms() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.work = Duration::from_millis(600));
    let limit = Duration::from_millis(200);
    let call = stage.begin_as(stage.session, "swarm_run", swarm(&TWO), limit);
    let error = call.answer().await.expect_err("too late");
    assert_eq!(error.code, "deadline_exceeded");
    let id = &error.details["swarm_id"];
    assert!(error.to_text().contains("swarm_status"), "{error}");
    assert_eq!(stage.over(id).await["summary"]["succeeded"], 2);
    once(&stage, 2);
}

#[tokio::test]
async fn an_ordered_stop_is_no_cancellation_and_the_next_daemon_goes_on() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.work = Duration::from_millis(300));
    let mut args = swarm(&[("a", "ok"), ("b", "ok"), ("c", "ok")]);
    args["max_parallel"] = json!(2);
    let running = stage.begin(args.clone());
    eventually("two run", async || stage.fake.with(|world| world.effects.len()) == 2).await;
    // As the doors do it: told first, and then every call is cut short.
    stage.closing.cancel();
    running.cancel.cancel();
    let error = running.answer().await.expect_err("the daemon stops");
    assert_eq!((error.code.as_ref(), error.retryable), ("daemon_stopping", false), "{error}");
    let id = error.details["swarm_id"].clone();
    assert_eq!(stage.refused(args).await.code, "daemon_stopping", "and no other is begun");
    // Tasks end in their guests meanwhile; nothing new is forked for the third.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(stage.fake.with(|world| world.begun), 2);
    let stage = stage.stopped().await;
    let done = stage.over(&id).await;
    assert_eq!((&done["state"], &done["summary"]["succeeded"]), (&json!("completed"), &json!(3)));
    once(&stage, 3);
}

#[tokio::test]
async fn a_daemon_that_dies_while_it_forks_makes_no_second_fork() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.slow = Duration::from_millis(100));
    let running = stage.begin(swarm(&TWO));
    eventually("it forks", async || stage.fake.with(|world| world.forking) == 2).await;
    let stage = stage.crashed().await;
    drop(running);
    // What the dead daemon had begun comes to its end before its successor takes calls.
    let id = stage.only().await;
    assert_eq!(stage.over(&id).await["summary"]["total_tasks"], 2);
    assert!(stage.fake.forks().is_empty());
}

#[tokio::test]
async fn a_daemon_that_dies_while_tasks_run_goes_on_with_them() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.work = Duration::from_millis(400));
    let running = stage.begin(swarm(&TWO));
    eventually("they run", async || stage.fake.with(|world| world.effects.len()) == 2).await;
    let stage = stage.crashed().await;
    drop(running);
    let id = stage.only().await;
    assert_eq!(stage.over(&id).await["summary"]["succeeded"], 2);
    once(&stage, 2);
}

#[tokio::test]
async fn a_swarm_whose_actor_dies_goes_on_and_its_call_is_answered() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.slow = Duration::from_millis(300));
    let running = stage.begin(swarm(&TWO));
    eventually("it forks", async || stage.fake.with(|world| world.forking) == 2).await;
    stage.kill_swarms();
    let done = running.answer().await.expect("a result");
    assert_eq!(done["summary"]["succeeded"], 2);
    assert_eq!(stage.fake.with(|world| world.begun), 2, "what was begun is waited for and found");
    once(&stage, 2);
}

#[tokio::test]
async fn a_machine_that_goes_down_is_started_and_tells_what_became_of_its_task() {
    let stage = Stage::new().await;
    let running = stage.begin(swarm(&[("a", "hang"), ("b", "ok")]));
    eventually("it runs", async || stage.fake.with(|world| world.effects.len()) == 2).await;
    stage.fake.crash("-a");
    let done = running.answer().await.expect("a result");
    assert_eq!(done["tasks"][0]["outcome"], "interrupted");
    assert_eq!(done["tasks"][1]["success"], true);
    once(&stage, 2);
}

#[tokio::test]
async fn what_cannot_be_removed_is_told_and_removed_later() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.work = Duration::from_millis(200));
    let running = stage.begin(swarm(&TWO));
    eventually("they run", async || stage.fake.with(|world| world.effects.len()) == 2).await;
    let stuck = stage.fake.forks()[0].clone();
    stage.fake.with(|world| world.stuck.insert(stuck.clone()));
    let done = running.answer().await.expect("a result");
    assert_eq!(done["workers_left"][0]["workspace_name"], json!(stuck));
    let counts = (&done["summary"]["workers_destroyed"], &done["summary"]["workers_left"]);
    assert_eq!(counts, (&json!(1), &json!(1)));
    let stage = stage.crashed().await;
    assert_eq!(stage.rows().await[0]["summary"]["workers_left"], 1, "it is still so");
    stage.fake.with(|world| world.stuck.clear());
    let stage = stage.crashed().await;
    let id = done["swarm_id"].clone();
    eventually("it is gone", async || stage.over(&id).await["summary"]["workers_left"] == 0).await;
    assert!(stage.fake.forks().is_empty());
    let stage = stage.crashed().await;
    let told = stage.over(&id).await;
    assert_eq!(
        (&told["workers_left"], &told["summary"]["workers_destroyed"]),
        (&json!(null), &json!(2))
    );
}

/// Writes what a daemon that died had written, with the forks that it had made.
pub(super) async fn left_behind(stage: &Stage, args: &Value, step: usize) -> SwarmId {
    // The manager has read its records: it does not see these.
    assert!(stage.rows().await.is_empty());
    let id = SwarmId::new();
    let wanted = serde_json::from_value(args.clone()).expect("an input");
    let plan = stage.plan(id, wanted).await;
    let owner = stage.session;
    let mut written = vec![Record::Planned(Box::new(plan.clone()))];
    let mut workers = Vec::new();
    for (task, job) in plan.tasks.iter().enumerate() {
        // 1: a fork that is not recorded. 2: one that is. 3: its task has run.
        let made = step >= 2 || (step == 1 && task == 0);
        if made {
            workers.push(stage.fake.add(&job.workspace, owner));
        }
        if step >= 2 {
            written.push(Record::WorkerMade { task, workspace: workers[task], fork_ms: 1 });
        }
        if step >= 3 {
            let end = stage.fake.run_now(&job.workspace, &plan, task);
            if step >= 4 {
                written.push(Record::TaskEnded { task, end });
            }
        }
    }
    if step >= 5 {
        written.push(Record::Merging);
    }
    if step >= 6 {
        let merge =
            json!({ "strategy": "sequential", "target_workspace": plan.golden, "success": true });
        let merge = serde_json::from_value(merge).expect("a merge");
        written.push(Record::Merged { merge });
    }
    if step >= 7 {
        stage.fake.with(|world| world.workspaces.retain(|name, _| !name.starts_with("swarm-")));
        written.push(Record::Cleaned {
            left: Vec::new(),
            kept: Vec::new(),
            at: (step >= 8).then(Utc::now),
        });
    }
    stage.write(id, &written).await;
    id
}

#[tokio::test]
async fn every_point_of_a_swarm_is_gone_on_from() {
    for step in 0..=8 {
        let stage = Stage::new().await;
        let mut args = swarm(&TWO);
        args["merge_strategy"] = json!("sequential");
        let id = left_behind(&stage, &args, step).await;
        let stage = stage.crashed().await;
        let done = stage.over(&json!(id)).await;
        assert_eq!(
            (&done["state"], &done["summary"]["succeeded"]),
            (&json!("completed"), &json!(2)),
            "{step}"
        );
        once(&stage, 2);
        assert_eq!(done["merge"]["success"], true, "{step}");
        assert_eq!(done["merge"].get("repeated").is_some(), step == 5, "{step}: {done}");
        let merges = stage.fake.with(|world| world.merges.len());
        assert_eq!(merges, usize::from(step < 6), "{step}");
    }
}

#[tokio::test]
async fn a_cancellation_is_remembered() {
    let stage = Stage::new().await;
    let id = left_behind(&stage, &swarm(&TWO), 2).await;
    stage.write(id, &[Record::Cancelled]).await;
    let stage = stage.crashed().await;
    assert_eq!(stage.over(&json!(id)).await["state"], "cancelled");
    assert!(stage.fake.forks().is_empty() && stage.fake.with(|world| world.effects.is_empty()));
}

#[tokio::test]
async fn a_plan_larger_than_a_record_comes_back_whole() {
    let stage = Stage::new().await;
    let many: Vec<_> = (0..20).map(|n| (format!("t{n}"), "\u{1}".repeat(100_000))).collect();
    let tasks: Vec<_> = many.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let mut args = swarm(&tasks);
    args["shared_context"] = json!("\u{2}".repeat(1024 * 1024));
    let id = left_behind(&stage, &args, 0).await;
    let loaded = load::<SwarmState>(&stage.journal, &stream(id)).expect("read").expect("there");
    let SwarmState::Running(state) = loaded.state else { panic!("it is not over") };
    assert_eq!(state.plan.tasks[19].command, many[19].1);
    assert_eq!(state.plan.contexts[0].content.len(), 1024 * 1024);
}

#[tokio::test]
async fn a_result_that_its_guest_has_is_taken_before_anything_is_written() {
    let stage = Stage::new().await;
    let mut args = swarm(&TWO);
    args["shared_context"] = json!("to all");
    let id = left_behind(&stage, &args, 3).await;
    // As after a stop of all machines, of guests whose disks the tasks have filled.
    stage.fake.all_are("stopped");
    stage.fake.with(|world| (world.full, world.busy_starts) = (true, 1));
    let stage = stage.crashed().await;
    let done = stage.over(&json!(id)).await;
    assert_eq!(done["summary"]["succeeded"], 2, "{done}");
    once(&stage, 2);
}

#[tokio::test]
async fn a_fork_that_is_down_is_started_once_and_gets_all_its_files() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.vault = true);
    let mut args = swarm(&TWO);
    args["cleanup"] = json!(false);
    args["shared_context"] = json!("to all");
    args["vault_context"] = json!([{ "kind": "read", "query": "n.md" }]);
    let id = left_behind(&stage, &args, 2).await;
    stage.fake.all_are("stopped");
    let stage = stage.crashed().await;
    let done = stage.over(&json!(id)).await;
    assert_eq!(
        (&done["summary"]["succeeded"], stage.fake.with(|world| world.starts)),
        (&json!(2), 2)
    );
    let all = stage.fake.with(|world| world.workspaces.clone());
    assert!(stage.fake.forks().iter().all(|name| all[name].files.len() == 2));
}

#[tokio::test]
async fn a_task_in_a_fork_that_stays_is_cancelled_or_said_to_run_on() {
    for (deaf, outcome, code) in
        [(3, "cancelled", "cancelled"), (usize::MAX, "failed", "may_still_run")]
    {
        let stage = Stage::new().await;
        let mut args = swarm(&[("a", "hang")]);
        args["cleanup"] = json!(false);
        let hour = Duration::from_secs(3600);
        let running = stage.begin_as(stage.session, "swarm_run", args, hour);
        eventually("it runs", async || stage.fake.with(|world| world.effects.len()) == 1).await;
        let id = stage.only().await;
        stage.fake.with(|world| world.deaf = deaf);
        stage.call("swarm_cancel", json!({ "swarm_id": id })).await.expect("told");
        let answer = tokio::spawn(running.answer());
        while !answer.is_finished() {
            if deaf == usize::MAX {
                tokio::time::pause();
                tokio::time::advance(Duration::from_secs(5)).await;
                tokio::time::resume();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(answer.await.expect("no panic").expect_err("cancelled").code, "cancelled");
        let task = stage.over(&id).await["tasks"][0].take();
        assert_eq!(
            (&task["outcome"], &task["error_code"]),
            (&json!(outcome), &json!(code)),
            "{task}"
        );
        let name = stage.fake.forks()[0].clone();
        let ended = stage.fake.with(|world| world.workspaces[&name].task.clone());
        assert_eq!(ended.expect("put").1.is_some(), deaf == 3, "what is said is so");
    }
}
