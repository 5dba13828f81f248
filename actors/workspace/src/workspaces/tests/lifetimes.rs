//! Ends of workspaces that come by themselves, and the labels that they are found by.

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::WorkspaceId;
use hivekeep_store::StreamId;
use serde_json::{Value, json};

use super::stage::Stage;
use crate::{
    Options,
    lifetime::{AtEnd, EndChange, LifetimeChange},
    records::Record,
};

/// A workspace that ends a second from now; its id, and when.
async fn with_life(stage: &Stage, name: &str, at_end: &str) -> (String, DateTime<Utc>) {
    let id = stage.create(name).await;
    let ends_at = end_soon(stage, &id, at_end).await;
    (id, ends_at)
}

async fn end_soon(stage: &Stage, id: &str, at_end: &str) -> DateTime<Utc> {
    let request = json!({ "workspace_id": id, "lifetime_secs": 1, "at_end": at_end });
    let set = stage.call("workspace_lifetime", request).await.unwrap();
    assert_eq!((&set["workspace_id"], &set["at_end"]), (&json!(id), &json!(at_end)));
    time(&set["ends_at"])
}

fn time(value: &Value) -> DateTime<Utc> {
    serde_json::from_value(value.clone()).unwrap()
}

/// The end of what lived until then; never before its time.
async fn ended(stage: &Stage, id: &str, state: &str) -> Value {
    let info = stage.once(id, |info| info["state"] == state && info["ends_at"].is_null()).await;
    assert_eq!((&info["at_end"], &info["end_delayed"]), (&Value::Null, &Value::Null), "{info}");
    info
}

async fn lifetime(stage: &Stage, mut request: Value) -> Value {
    request["workspace_id"] = json!("w");
    stage.call("workspace_lifetime", request).await.unwrap()
}

/// As a call that sets the end does up to its commit; the next daemon finds it.
async fn record(stage: &Stage, id: &str, record: &Record) {
    let stream = StreamId::new("workspace", id).unwrap();
    stage.journal.append(&stream, vec![serde_json::to_vec(record).unwrap()]).await.unwrap();
}

fn ends(at: DateTime<Utc>, at_end: AtEnd) -> Record {
    Record::LifetimeSet(LifetimeChange { end: EndChange::At(at), at_end: Some(at_end) })
}

#[tokio::test]
async fn a_workspace_is_stopped_at_its_end_and_never_again() {
    let stage = Stage::open().await;
    let (id, ends_at) = with_life(&stage, "w", "stop").await;
    ended(&stage, &id, "stopped").await;
    assert!(Utc::now() >= ends_at, "it ended before its time");
    let events = stage.events();
    let count = |kind: &str| events.iter().filter(|event| *event == kind).count();
    for kind in ["workspace.lifetime_over", "workspace.stopped", "workspace.ended_by_lifetime"] {
        assert_eq!(count(kind), 1, "{events:?}");
    }
    stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
    let info = stage.info(&id).await;
    assert_eq!((&info["state"], &info["ends_at"]), (&json!("running"), &Value::Null), "{info}");
    assert!(stage.records().contains("lifetime_ended"));
}

#[tokio::test]
async fn a_workspace_is_removed_or_paused_at_its_end() {
    let stage = Stage::open().await;
    let (gone, _) = with_life(&stage, "gone", "destroy").await;
    let (paused, _) = with_life(&stage, "paused", "pause").await;
    ended(&stage, &paused, "paused").await;
    let directory = stage.daemon.shared.directory.clone();
    let id: WorkspaceId = gone.parse().unwrap();
    stage.until(|| !directory.knows(id)).await;
    assert_eq!(stage.daemon.quota.held(), 1);
    assert!(!stage.driver.is_running(&gone) && stage.driver.is_running(&paused));
    let resumed = stage.call("workspace_resume", json!({ "workspace_id": paused })).await.unwrap();
    assert_eq!(resumed["state"], "running");
}

#[tokio::test]
async fn an_end_that_came_while_no_daemon_ran_is_carried_out_and_no_other_one() {
    let mut stage = Stage::open().await;
    let [past, stopped, future] = ["past", "stopped", "future"].map(ToOwned::to_owned);
    let mut ids = Vec::new();
    for name in [&past, &stopped, &future] {
        ids.push(stage.create(name).await);
    }
    let now = Utc::now();
    record(&stage, &ids[0], &ends(now - TimeDelta::hours(1), AtEnd::Stop)).await;
    record(&stage, &ids[1], &ends(now - TimeDelta::hours(1), AtEnd::Destroy)).await;
    record(&stage, &ids[2], &ends(now + TimeDelta::hours(1), AtEnd::Destroy)).await;
    stage.restart().await;
    ended(&stage, &ids[0], "stopped").await;
    let (directory, gone) = (stage.daemon.shared.directory.clone(), ids[1].parse().unwrap());
    stage.until(|| !directory.knows(gone)).await;
    let info = stage.once(&ids[2], |info| info["state"] == "running").await;
    assert_eq!(time(&info["ends_at"]), now + TimeDelta::hours(1));
}

#[tokio::test]
async fn what_was_over_ends_although_the_clock_went_back() {
    let mut stage = Stage::open().await;
    let id = stage.create("w").await;
    // The daemon died right behind the intent, and its host came back with an earlier time.
    let ends_at = Utc::now() + TimeDelta::hours(1);
    record(&stage, &id, &ends(ends_at, AtEnd::Stop)).await;
    record(&stage, &id, &Record::LifetimeOver { ends_at, at: ends_at }).await;
    stage.restart().await;
    ended(&stage, &id, "stopped").await;
    assert!(!stage.driver.is_running(&id));
}

#[tokio::test]
async fn an_end_that_another_one_replaced_is_not_carried_out() {
    let mut stage = Stage::open().await;
    let id = stage.create("w").await;
    let (past, future) = (Utc::now() - TimeDelta::hours(1), Utc::now() + TimeDelta::hours(1));
    record(&stage, &id, &ends(past, AtEnd::Destroy)).await;
    record(&stage, &id, &ends(future, AtEnd::Destroy)).await;
    record(&stage, &id, &Record::LifetimeOver { ends_at: past, at: past }).await;
    record(&stage, &id, &Record::LifetimeEnded { ends_at: past }).await;
    stage.restart().await;
    let info = stage.once(&id, |info| info["state"] == "running").await;
    assert_eq!(time(&info["ends_at"]), future);
    let ledger = stage.daemon.shared.logs.state(id.parse().unwrap()).unwrap();
    assert!(!ledger.lifetime.unwrap().is_due(Utc::now()));
}

#[tokio::test]
async fn an_end_that_fails_says_so_and_is_tried_again() {
    let stage = Stage::open().await;
    stage.driver.refuse_kills(true);
    let (id, _) = with_life(&stage, "w", "stop").await;
    let info = stage.once(&id, |info| info["end_delayed"].is_string()).await;
    assert!(info["end_delayed"].as_str().unwrap().contains("machine_unkillable"), "{info}");
    assert!(stage.driver.is_running(&id) && info["ends_at"].is_string(), "{info}");
    stage.until(|| stage.events().contains(&"workspace.end_delayed".to_owned())).await;
    stage.driver.refuse_kills(false);
    ended(&stage, &id, "stopped").await;
}

#[tokio::test]
async fn an_end_waits_for_what_has_the_machine_to_itself() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    stage.driver.hold("save", true);
    let request =
        json!({ "workspace_id": id, "action": "create", "name": "s", "include_memory": true });
    let saving = stage.send("snapshot", request, |_| {}).unwrap();
    end_soon(&stage, &id, "destroy").await;
    let info = stage.once(&id, |info| info["end_delayed"].is_string()).await;
    assert!(info["end_delayed"].as_str().unwrap().contains("being snapshotted"), "{info}");
    stage.driver.hold("save", false);
    saving.await.unwrap().unwrap();
    let (directory, gone) = (stage.daemon.shared.directory.clone(), id.parse().unwrap());
    stage.until(|| !directory.knows(gone)).await;
}

#[tokio::test]
async fn an_end_is_set_extended_and_taken_away() {
    let stage = Stage::open().await;
    let id = stage.create("w").await;
    let set = lifetime(&stage, json!({ "lifetime_secs": 600, "at_end": "destroy" })).await;
    assert_eq!((&set["workspace_id"], &set["at_end"]), (&json!(id), &json!("destroy")));
    let ends_at = time(&set["ends_at"]);
    // Only ever longer, with what happens then as it was.
    let same = lifetime(&stage, json!({ "lifetime_secs": 5, "at_least": true })).await;
    assert_eq!((time(&same["ends_at"]), &same["at_end"]), (ends_at, &json!("destroy")));
    let longer = lifetime(&stage, json!({ "lifetime_secs": 1200, "at_least": true })).await;
    assert!(time(&longer["ends_at"]) > ends_at);
    let shown = lifetime(&stage, json!({ "at_end": "pause" })).await;
    assert_eq!((&shown["ends_at"], &shown["at_end"]), (&longer["ends_at"], &json!("pause")));
    let list = stage.call("workspace_list", json!({})).await.unwrap();
    let row = &list["workspaces"][0];
    assert_eq!((&row["ends_at"], &row["at_end"]), (&shown["ends_at"], &json!("pause")));
    let none = lifetime(&stage, json!({ "lifetime_secs": null })).await;
    assert_eq!((&none["ends_at"], &none["at_end"]), (&Value::Null, &Value::Null));
    // What has no end has none after an extension.
    let none = lifetime(&stage, json!({ "lifetime_secs": 5, "at_least": true })).await;
    assert_eq!(none["ends_at"], Value::Null);
    let request = json!({ "workspace_id": "w", "at_end": "stop" });
    let refused = stage.call("workspace_lifetime", request).await.unwrap_err();
    assert_eq!(refused.code, "invalid_input");
}

#[tokio::test]
async fn a_fork_has_the_labels_of_its_source_and_no_end() {
    let stage = Stage::open().await;
    let request = json!({
        "name": "w", "disk_gb": 1, "lifetime_secs": 3600, "labels": { "job": "7", "of": "me" },
    });
    let id = stage.call("workspace_create", request).await.unwrap()["workspace_id"].clone();
    let request = json!({ "workspace_id": id, "action": "create", "name": "s" });
    stage.call("snapshot", request).await.unwrap();
    let fork = |more: Value| {
        let mut request = json!({ "workspace_id": id, "snapshot_name": "s" });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        stage.call("workspace_fork", request)
    };
    fork(json!({ "new_name": "as-it-is" })).await.unwrap();
    let other = json!({ "new_name": "other", "labels": { "job": "8" }, "lifetime_secs": 60 });
    fork(other).await.unwrap();
    let info = stage.info("as-it-is").await;
    assert_eq!(
        (&info["labels"], &info["ends_at"]),
        (&json!({ "job": "7", "of": "me" }), &Value::Null)
    );
    let info = stage.info("other").await;
    assert_eq!((&info["labels"], &info["at_end"]), (&json!({ "job": "8" }), &json!("stop")));
    let found = async |labels: Value| {
        let list = stage.call("workspace_list", json!({ "labels": labels })).await.unwrap();
        let rows = list["workspaces"].as_array().unwrap().clone();
        rows.into_iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(json!({ "job": "7" })).await, ["w", "as-it-is"]);
    assert_eq!(found(json!({ "job": "8", "of": "me" })).await, [""; 0]);
    assert_eq!(found(json!({})).await.len(), 3);
    let refused = fork(json!({ "labels": { "": "x" } })).await.unwrap_err();
    assert_eq!(refused.code, "invalid_input");
}

#[tokio::test]
async fn a_machine_of_the_pool_gets_labels_and_an_end_with_its_name() {
    let options: Options = serde_json::from_value(json!({
        "default_disk_gb": 1, "default_memory_mb": 256, "pool": { "classes": [{ "ready": 1 }] },
    }))
    .unwrap();
    let mut stage = Stage::open_with(options).await;
    let begun = tokio::time::Instant::now();
    while stage.call("pool_status", json!({})).await.unwrap()["classes"][0]["ready"] != 1 {
        assert!(begun.elapsed().as_secs() < 30, "no machine is ready");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let request =
        json!({ "name": "w", "lifetime_secs": 3600, "at_end": "destroy", "labels": { "a": "b" } });
    let made = stage.call("workspace_create", request).await.unwrap();
    assert_eq!(made["from_pool"], true);
    let seen = async |stage: &Stage| {
        let list = stage.call("workspace_list", json!({ "labels": { "a": "b" } })).await.unwrap();
        assert_eq!(list["count"], 1, "{list}");
        list["workspaces"][0]["ends_at"].clone()
    };
    let ends_at = seen(&stage).await;
    assert!(time(&ends_at) > Utc::now() + TimeDelta::minutes(50));
    stage.restart().await;
    assert_eq!(seen(&stage).await, ends_at);
}
