//! The warm pool against machines that are none: what is given to whom, and what is left.

use std::{collections::BTreeSet, time::Duration};

use hivekeep_kernel::WorkspaceId;
use hivekeep_machine::{Error, ExitHow};
use hivekeep_ports::NetworkMode;
use hivekeep_store::StreamId;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Options,
    manager::Msg,
    pool::{self, made_of},
    records::{Record, WorkspaceSpec},
    workspaces::tests::{network, stage::Stage},
};

const PATIENCE: Duration = Duration::from_secs(30);

fn options(classes: &Value) -> Options {
    serde_json::from_value(json!({
        "default_disk_gb": 1, "default_memory_mb": 256, "max_workspaces": 8,
        "pool": { "classes": classes },
    }))
    .unwrap()
}

/// A daemon with so many machines ready.
async fn with_ready(ready: usize) -> Stage {
    let stage = Stage::open_with(options(&json!([{ "ready": ready }]))).await;
    once_ready(&stage, ready).await;
    stage
}

async fn status(stage: &Stage) -> Value {
    stage.call("pool_status", json!({})).await.unwrap()["classes"].clone()
}

async fn once(stage: &Stage, like: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let status = status(stage).await;
        if like(&status) {
            return status;
        }
        assert!(begun.elapsed() < PATIENCE, "{status:#}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn once_ready(stage: &Stage, ready: usize) -> Value {
    once(stage, |classes| classes[0]["ready"] == ready && classes[0]["at_work"] == false).await
}

fn machines(status: &Value) -> BTreeSet<String> {
    let rows = status[0]["machines"].as_array().unwrap().iter();
    rows.map(|row| row["workspace_id"].as_str().unwrap().to_owned()).collect()
}

/// How often the driver was asked this.
fn asked(stage: &Stage, what: &str) -> usize {
    let calls = stage.driver.calls();
    calls.iter().filter(|call| call.split(' ').next() == Some(what)).count()
}

fn launches(stage: &Stage) -> usize {
    asked(stage, "launch")
}

async fn create(stage: &Stage, args: Value) -> Value {
    stage.call("workspace_create", args).await.unwrap()
}

#[tokio::test]
async fn a_machine_is_given_once_with_its_new_name_and_is_replaced() {
    let stage = with_ready(2).await;
    let before = machines(&status(&stage).await);
    // One booted and was saved; the others are copies of it.
    assert_eq!((asked(&stage, "launch_from"), asked(&stage, "save")), (2, 1));
    assert_eq!(stage.call("workspace_list", json!({})).await.unwrap()["count"], 0);
    assert_eq!(stage.daemon.quota.held(), 0);

    let made = create(&stage, json!({ "name": "w" })).await;
    let id = made["workspace_id"].as_str().unwrap();
    assert!(made["from_pool"] == true && before.contains(id), "{made} {before:?}");
    let info = stage.info("w").await;
    assert_eq!((&info["workspace_id"], &info["state"]), (&made["workspace_id"], &json!("running")));
    assert_eq!((&info["name"], &info["owned"]), (&json!("w"), &json!(true)));
    assert!(info["forked_from"].is_null(), "{info}");
    assert_eq!(stage.daemon.quota.held(), 1);

    let after = machines(&once_ready(&stage, 2).await);
    assert!(!after.contains(id) && after.len() == 2, "{after:?}");
    // It is a workspace like any other now.
    stage.call("workspace_destroy", json!({ "workspace_id": "w" })).await.unwrap();
    assert_eq!(stage.daemon.quota.held(), 0);
    let other = create(&stage, json!({ "name": "w" })).await;
    assert_ne!(other["workspace_id"], made["workspace_id"]);
}

#[tokio::test]
async fn only_what_is_exactly_asked_for_is_given() {
    let stage = with_ready(1).await;
    for (nth, other) in
        [json!({ "memory_mb": 257 }), json!({ "vcpus": 1 }), json!({ "disk_gb": 2 })]
            .into_iter()
            .enumerate()
    {
        let mut args = other.clone();
        args["name"] = json!(format!("w{nth}"));
        let made = create(&stage, args).await;
        assert_eq!(made["from_pool"], false, "{other} {made}");
        for (what, value) in other.as_object().unwrap() {
            assert_eq!(&made["resources"][what], value);
        }
    }
    let status = once_ready(&stage, 1).await;
    assert_eq!((&status[0]["claimed"], &status[0]["missed"]), (&json!(0), &json!(0)));
    let made = create(&stage, json!({ "memory_mb": 256, "disk_gb": 1, "vcpus": 2 })).await;
    assert_eq!(made["from_pool"], true);
    // The same size made from something else is not the same.
    let spec = WorkspaceSpec {
        image: "base".into(),
        ..stage.options.pool.classes[0].spec(&stage.options)
    };
    let made_of = made_of(&stage.daemon.shared, &spec).await.unwrap();
    let other = serde_json::from_value(json!("another image")).unwrap();
    once_ready(&stage, 1).await;
    for (made_of, given) in [(other, false), (made_of, false)] {
        let take = |taken| pool::Msg::Take { spec: spec.clone(), made_of, taken };
        let taken = stage.daemon.manager.ask(PATIENCE, |taken| Msg::Pool(take(taken))).await;
        // After the first, what was there is out of date and goes.
        assert_eq!(taken.unwrap().is_some(), given);
    }
    once_ready(&stage, 1).await;
}

#[tokio::test]
async fn five_creations_share_three_machines_and_none_is_given_twice() {
    let stage = with_ready(3).await;
    let ready = machines(&status(&stage).await);
    let five = (0..5).map(|n| create(&stage, json!({ "name": format!("w{n}") })));
    let made = futures::future::join_all(five).await;
    let ids: BTreeSet<_> =
        made.iter().map(|made| made["workspace_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 5);
    let from_pool = made.iter().filter(|made| made["from_pool"] == true);
    for made in from_pool.clone() {
        assert_eq!(stage.info(made["name"].as_str().unwrap()).await["state"], "running");
    }
    // A machine that was replaced meanwhile may have been given too.
    assert!(from_pool.count() >= 3 && ready.iter().all(|id| ids.contains(id)), "{made:?}");
    assert_eq!(stage.daemon.quota.held(), 5);
}

#[tokio::test]
async fn a_guest_that_does_not_take_its_name_is_discarded_and_the_caller_gets_another() {
    let stage = with_ready(1).await;
    let before = machines(&status(&stage).await);
    stage.stubborn.store(1, std::sync::atomic::Ordering::SeqCst);
    let made = create(&stage, json!({ "name": "w" })).await;
    assert_eq!((&made["from_pool"], &made["name"]), (&json!(false), &json!("w")));
    assert!(!before.contains(made["workspace_id"].as_str().unwrap()));
    assert_eq!(stage.info("w").await["workspace_id"], made["workspace_id"]);
    assert_eq!(stage.daemon.quota.held(), 1);
    let status = once_ready(&stage, 1).await;
    assert!(machines(&status).is_disjoint(&before));
    assert_eq!((&status[0]["claimed"], &status[0]["missed"]), (&json!(0), &json!(1)));
    for id in before {
        assert!(!stage.driver.is_running(&id));
    }
}

#[tokio::test]
async fn an_idle_machine_that_ends_is_replaced() {
    let stage = with_ready(1).await;
    let before = machines(&status(&stage).await);
    for id in &before {
        assert!(stage.driver.crash(id, ExitHow::Signaled { signal: 9 }));
    }
    let status =
        once(&stage, |classes| classes[0]["ready"] == 1 && machines(classes).is_disjoint(&before))
            .await;
    assert_eq!(status[0]["failures_in_a_row"], 0);
}

#[tokio::test]
async fn unclaimed_machines_are_ready_again_after_a_restart_if_they_still_fit() {
    let mut stage = with_ready(2).await;
    let claimed = create(&stage, json!({ "name": "w" })).await;
    let before = once_ready(&stage, 2).await;
    let launched = launches(&stage);
    stage.restart().await;
    let after = once_ready(&stage, 2).await;
    assert_eq!(
        (machines(&before), &before[0]["template"]),
        (machines(&after), &after[0]["template"])
    );
    assert_eq!(launches(&stage), launched);
    // Only what is somebody's counts.
    assert_eq!(stage.daemon.quota.held(), 1);
    assert_eq!(stage.info("w").await["workspace_id"], claimed["workspace_id"]);

    // One class less, and another size: nothing of the old ones stays.
    stage.options = options(&json!([{ "ready": 1, "memory_mb": 128 }]));
    stage.restart().await;
    let status = once_ready(&stage, 1).await;
    assert!(machines(&status).is_disjoint(&machines(&after)));
    // The one that is somebody's, the new one and its template.
    streams(&stage, 3).await;
    assert!(machines(&after).iter().all(|id| !stage.driver.is_running(id)));
    stage.options = options(&json!([]));
    stage.restart().await;
    streams(&stage, 1).await;
    assert!(machines(&status).iter().all(|id| !stage.driver.is_running(id)));
}

/// Waits until so many workspaces are recorded, the pool's among them.
async fn streams(stage: &Stage, left: usize) {
    let begun = Instant::now();
    loop {
        let streams = stage.journal.streams("workspace/").unwrap();
        if streams.len() == left {
            return;
        }
        let cards = || {
            let cards = stage.daemon.shared.directory.all();
            cards.into_iter().map(|card| (card.id, card.phase, card.pool)).collect::<Vec<_>>()
        };
        assert!(begun.elapsed() < PATIENCE, "{streams:?} {:#?}", cards());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_claim_that_was_recorded_and_not_answered_is_the_claimers() {
    let mut stage = with_ready(1).await;
    let id = machines(&status(&stage).await).pop_first().unwrap();
    // As a claim does up to its commit; then the daemon dies.
    let record = Record::Claimed {
        owner: stage.session,
        user: None,
        name: "w".parse().unwrap(),
        at: chrono::Utc::now(),
        network: Default::default(),
        labels: Default::default(),
        lifetime: None,
    };
    let stream = StreamId::new("workspace", &id).unwrap();
    stage.journal.append(&stream, vec![serde_json::to_vec(&record).unwrap()]).await.unwrap();
    stage.restart().await;
    let info = stage.once("w", |info| info["state"] == "running").await;
    assert_eq!((info["workspace_id"].as_str(), &info["owned"]), (Some(&*id), &json!(true)));
    assert_eq!(stage.daemon.quota.held(), 1);
    let status = once_ready(&stage, 1).await;
    assert!(!machines(&status).contains(&id));
    let taken = stage.call("workspace_create", json!({ "name": "w" })).await;
    assert_eq!(taken.unwrap_err().code, "name_taken");
}

#[tokio::test]
async fn people_come_before_the_pool_when_places_are_few() {
    // Eight places: three machines and their template leave four.
    let stage = with_ready(3).await;
    for n in 0..8 {
        // Another size, so that none is taken from the pool.
        create(&stage, json!({ "name": format!("w{n}"), "memory_mb": 300 })).await;
    }
    let refused = stage.call("workspace_create", json!({ "name": "one-too-many" })).await;
    assert_eq!(refused.unwrap_err().code, "too_many_workspaces");
    let status = status(&stage).await;
    assert_eq!(status[0]["ready"], 0, "{status}");
    assert_eq!(stage.daemon.quota.held(), 8);
    for n in 0..8 {
        let name = format!("w{n}");
        stage.call("workspace_destroy", json!({ "workspace_id": name })).await.unwrap();
    }
    once_ready(&stage, 3).await;
}

#[tokio::test]
async fn what_cannot_be_saved_boots_and_says_why() {
    let stage = Stage::open().await;
    let why = "there is no space".to_owned();
    stage.driver.fail_next_save(Error::BadPlan(why.clone()));
    let mut stage = stage;
    stage.options = options(&json!([{ "ready": 2 }]));
    stage.restart().await;
    let status = once_ready(&stage, 2).await;
    assert_eq!(status[0]["made_by"], "boot");
    assert!(status[0]["boots_because"].as_str().unwrap().contains(&why), "{status}");
    assert!(status[0]["template"].is_null());
    assert!(!stage.driver.calls().iter().any(|call| call.starts_with("launch_from")));
    assert_eq!(create(&stage, json!({})).await["from_pool"], true);
}

#[tokio::test]
async fn a_failure_is_told_and_tried_again() {
    let stage = Stage::open().await;
    stage.driver.fail_next_launch(Error::BadPlan("no processor".into()));
    let mut stage = stage;
    stage.options = options(&json!([{ "ready": 1 }]));
    stage.restart().await;
    let status = once(&stage, |classes| classes[0]["failures_in_a_row"] == 1).await;
    assert!(status[0]["last_failure"].as_str().unwrap().contains("no processor"), "{status}");
    let status = once_ready(&stage, 1).await;
    assert!(status[0]["last_failure"].is_null() && status[0]["made_by"] == "copy", "{status}");
    // The machine that could not be made has left nothing.
    streams(&stage, 2).await;
}

#[tokio::test]
async fn a_stop_of_the_daemon_stops_its_machines_too_and_makes_no_others() {
    let mut stage = with_ready(2).await;
    let before = machines(&status(&stage).await);
    stage.daemon.manager.ask(PATIENCE, Msg::StopAll).await.unwrap();
    assert!(before.iter().all(|id| !stage.driver.is_running(id)));
    let launched = launches(&stage);
    let known = |id: &String| stage.daemon.shared.directory.any(id.parse().unwrap()).is_some();
    assert!(before.iter().all(known) && launches(&stage) == launched);
    // A machine that does not run is not ready: others are made of the same template.
    stage.restart().await;
    let after = once_ready(&stage, 2).await;
    assert!(machines(&after).is_disjoint(&before));
    assert_eq!(launches(&stage), launched + 2);
}

#[tokio::test]
async fn what_the_pool_keeps_cannot_be_named_or_taken_over() {
    let stage = with_ready(1).await;
    let id = machines(&status(&stage).await).pop_first().unwrap();
    let name = stage.daemon.shared.directory.any(id.parse::<WorkspaceId>().unwrap()).unwrap().name;
    for named in [id.as_str(), name.as_str()] {
        let refused = stage.daemon.shared.directory.card(named).map(|card| card.id);
        assert_eq!(refused.unwrap_err().code, "workspace_not_found");
    }
    let adopted = stage.call("workspace_adopt", json!({})).await.unwrap();
    assert_eq!(adopted["adopted_count"], 0, "{adopted}");
    // Its name is nobody's, so somebody may have it.
    assert_eq!(create(&stage, json!({ "name": name })).await["from_pool"], true);
}

#[tokio::test]
async fn a_machine_of_the_pool_gets_the_network_that_its_claimer_asks_for() {
    let (mut stage, ..) = network::open(NetworkMode::Bridge).await;
    stage.options = options(&json!([{ "ready": 1 }]));
    stage.restart().await;
    once_ready(&stage, 1).await;
    let calls = |what: &str| stage.network.calls().iter().filter(|call| *call == what).count();
    let joins = calls("join");
    let made = create(&stage, json!({ "name": "closed" })).await;
    assert_eq!((&made["from_pool"], calls("set_policy")), (&json!(true), 0));
    // Its place is the one that it had before, so that nothing waits for another.
    assert!(made["ip"].is_string(), "{made}");
    once_ready(&stage, 1).await;
    assert_eq!(calls("join"), joins + 1);
    let made = create(&stage, json!({ "name": "open", "allow_internet": true })).await;
    assert_eq!((&made["from_pool"], calls("set_policy")), (&json!(true), 1));
    assert_eq!(stage.info("open").await["network"]["allow_internet"], true);
    assert_eq!(stage.info("closed").await["network"]["allow_internet"], false);
    // What the network refuses is nobody's, and the caller has an ordinary one.
    once_ready(&stage, 1).await;
    stage.network.fail_next("set_policy");
    let made = create(&stage, json!({ "name": "third", "allow_internet": true })).await;
    assert_eq!(made["from_pool"], false);
    assert_eq!(stage.info("third").await["network"]["allow_internet"], true);
    once_ready(&stage, 1).await;
}
