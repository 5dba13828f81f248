//! Metrics over a real journal: windows against a model, crashes, the daemon's events, InfluxDB.

mod influx;
mod windows;

use std::sync::Arc;

use chrono::Utc;
use hivekeep_kernel::{SessionId, ToolError, User};
use hivekeep_ports::{LateTools, ValueRedactor};
use hivekeep_store::NewEvent;
use hivekeep_testkit::{FakeUsers, Rig, RigServices, eventually};
use serde_json::{Value, json};

use super::tally::MetricEntry;
use crate::{
    MetricsFamily, MetricsReach, MetricsStore, MetricsWindow, Options, PastMetric, query,
    write_past,
};

const OWNER: User = User::Uid(7);
const OTHER: User = User::Uid(8);

/// Hides what is called a secret.
struct FakeRedactor;

impl ValueRedactor for FakeRedactor {
    fn redact(&self, mut value: Value) -> Value {
        if let Some(secret) = value.get_mut("secret") {
            *secret = json!("[redacted]");
        }
        value
    }
}

async fn rig(options: Options) -> (Rig<MetricsFamily>, SessionId) {
    let other = SessionId::new();
    let services = RigServices {
        sessions: Arc::new(FakeUsers::all(OWNER).and(other, OTHER)),
        tools: Arc::new(LateTools::default()),
        offer: Arc::new(|ports| ports.offer::<dyn ValueRedactor>(Arc::new(FakeRedactor))),
    };
    (Rig::new(options, services).await, other)
}

fn store(rig: &Rig<MetricsFamily>) -> Arc<MetricsStore> {
    rig.daemon.ports.need::<MetricsStore>().expect("it is offered")
}

fn window(text: &str) -> MetricsWindow {
    text.parse().expect("a window")
}

fn entry(at_ms: i64, kind: &str) -> MetricEntry {
    let (repo, agent_id) = ("r".to_owned(), String::new());
    let kind = kind.to_owned();
    MetricEntry { at_ms, user: Some(OWNER), kind, repo, agent_id, data: Default::default() }
}

#[tokio::test]
async fn what_is_recorded_is_counted_by_type_repository_and_agent_also_after_a_crash() {
    let (mut rig, other) = rig(Options::default()).await;
    for (kind, agent, repo) in
        [("b", "x", "one"), ("a", "", "one"), ("b", "y", ""), ("a", "x", "two"), ("c", "x", "one")]
    {
        let args = json!({ "type": kind, "agent_id": agent, "repo": repo, "data": { "n": 1 } });
        let made = rig.call("metrics_record", args).await.expect("recorded");
        assert_eq!(made["success"], true);
    }
    let theirs = rig.begin_as(
        other,
        "metrics_record",
        json!({ "type": "b" }),
        std::time::Duration::from_secs(9),
    );
    theirs.answer().await.expect("recorded");
    for _ in 0..2 {
        let found = rig.call("metrics_query", json!({})).await.expect("counted");
        assert_eq!(found["total"], 5, "another user's are not seen: {found}");
        let rows = |rows: &[(&str, u64)]| -> Value {
            rows.iter().map(|(key, count)| json!({ "key": key, "count": count })).collect()
        };
        assert_eq!(found["by_type"], rows(&[("a", 2), ("b", 2), ("c", 1)]));
        assert_eq!(found["by_repo"], rows(&[("one", 3), ("two", 1)]));
        assert_eq!(found["by_agent"], rows(&[("x", 3), ("y", 1)]));
        let kinds: Vec<_> =
            found["events"].as_array().expect("a list").iter().map(|it| &it["type"]).collect();
        assert_eq!(kinds, ["c", "a", "b", "a", "b"], "newest first");
        assert!(found["events"][0].get("data").is_none() && found.get("left_out").is_none());
        let all = store(&rig).count(window("7d"), MetricsReach::All).await.expect("counted");
        assert_eq!(all.total, 6);
        rig = rig.crashed().await;
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_credentials_are_hidden() {
    let (rig, _) = rig(Options { max_data_kb: 1, ..Options::default() }).await;
    for (args, code) in [
        (json!({ "type": " " }), "invalid_input"),
        (json!({ "type": "a\nb" }), "invalid_input"),
        (json!({ "type": "a", "repo": "ö".repeat(65) }), "invalid_input"),
        (json!({ "type": "a", "data": { "x": "y".repeat(1100) } }), "invalid_input"),
    ] {
        let refused = rig.call("metrics_record", args.clone()).await.expect_err("refused");
        assert_eq!(refused.code, code, "{args}");
    }
    for since in ["", "0d", "366d", "7w", "-1d"] {
        let refused = rig.call("metrics_query", json!({ "since": since })).await;
        assert_eq!(refused.expect_err(since).code, "metrics_window_invalid", "{since}");
    }
    let secret = json!({ "type": "a", "data": { "secret": "hunter2", "n": 1 } });
    rig.call("metrics_record", secret).await.expect("recorded");
    let mut export = store(&rig).export(window("1d"), MetricsReach::All);
    let mut lines = Vec::new();
    while let Some(part) = export.next().await.expect("exported") {
        lines.extend(part);
    }
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["data"], json!({ "secret": "[redacted]", "n": 1 }));
    assert_eq!((&lines[0]["type"], &lines[0]["user"]), (&json!("a"), &json!("uid:7")));

    rig.call("metrics_record", json!({ "type": "a" })).await.expect("the second");
}

#[tokio::test]
async fn one_user_takes_half_of_a_day_and_leaves_the_rest_to_others() {
    let (mut rig, other) = rig(Options { max_records_per_day: 4, ..Options::default() }).await;
    let limit = std::time::Duration::from_secs(9);
    let small = || json!({ "type": "a" });
    for _ in 0..2 {
        rig.call("metrics_record", small()).await.expect("its half");
    }
    let busy = |refused: ToolError| {
        let share = &refused.details["share"];
        assert_eq!((&*refused.code, share), ("busy", &json!("metrics.max_records_per_day")));
    };
    busy(rig.call("metrics_record", small()).await.expect_err("half is held"));
    let theirs = rig.begin_as(other, "metrics_record", small(), limit);
    theirs.answer().await.expect("another user's");
    rig = rig.crashed().await;
    busy(rig.call("metrics_record", small()).await.expect_err("half of what the other leaves"));
    let theirs = rig.begin_as(other, "metrics_record", small(), limit);
    busy(theirs.answer().await.expect_err("half of what is left, also after a crash"));

    let (rig, other) = self::rig(Options { max_records_per_day: 1, ..Options::default() }).await;
    rig.call("metrics_record", small()).await.expect("the only one");
    let theirs = rig.begin_as(other, "metrics_record", small(), limit);
    let full = theirs.answer().await.expect_err("nothing is left");
    assert_eq!(full.code, "metrics_day_full");
}

#[tokio::test]
async fn one_user_takes_half_of_the_bytes_of_a_day() {
    let options = Options { max_mb_per_day: 1, max_data_kb: 64, ..Options::default() };
    let (rig, other) = rig(options).await;
    let large = || json!({ "type": "a", "data": { "x": "y".repeat(60 * 1024) } });
    let mut kept = 0;
    let refused = loop {
        match rig.call("metrics_record", large()).await {
            Ok(_) => kept += 1,
            Err(refused) => break refused,
        }
    };
    let share = &refused.details["share"];
    assert_eq!((&*refused.code, share), ("busy", &json!("metrics.max_mb_per_day")));
    assert_eq!(kept, 8, "half a MiB");
    let limit = std::time::Duration::from_secs(9);
    let theirs = rig.begin_as(other, "metrics_record", large(), limit);
    theirs.answer().await.expect("another user's");
}

#[tokio::test]
async fn events_of_the_daemon_are_counted_once_over_crashes() {
    let (mut rig, _) = rig(Options { daemon_events: true, ..Options::default() }).await;
    for round in 1..=3_u64 {
        for nth in 0..40_u64 {
            let kind = if nth % 4 == 0 { "workspace.created" } else { "call.finished" };
            let event =
                NewEvent { kind: kind.to_owned(), subject: "x".to_owned(), data: json!({}) };
            rig.daemon.journal.events().publish(event).await.expect("published");
        }
        if round == 2 {
            // Some of them may be counted by now, and some not.
            rig = rig.crashed().await;
        }
        let store = store(&rig);
        eventually("they are counted", async || {
            let found = store.count(window("1d"), MetricsReach::All).await.expect("counted");
            assert!(found.total <= 40 * round, "nothing twice: {found:?}");
            found.total == 40 * round
        })
        .await;
        let found = store.count(window("1d"), MetricsReach::All).await.expect("counted");
        assert_eq!(found.by_type[0].count, 30 * round);
        let own = rig.call("metrics_query", json!({})).await.expect("counted");
        assert_eq!(own["total"], 0, "they are the operator's to see");
        rig = rig.crashed().await;
    }
}

#[tokio::test]
async fn a_day_is_in_segments_that_are_folded_and_expires() {
    let (mut rig, _) = rig(Options { keep_days: 3, ..Options::default() }).await;
    let (now, day) = (Utc::now().timestamp_millis(), 24 * 3_600_000);
    let metrics = store(&rig);
    for nth in 0..2_500_i64 {
        let durable = metrics.ledger.add(entry(now - day + nth % 7, "a")).expect("decided");
        if nth % 50 == 0 {
            durable.await.expect("durable");
        }
    }
    metrics.ledger.add(entry(now - 5 * day, "old")).expect("decided").await.expect("durable");
    let rows = metrics.ledger.rows();
    assert!(rows.len() >= 3 && rows.iter().all(|row| row.entries <= crate::segment::MOST_ENTRIES));
    let count = async |rig: &Rig<MetricsFamily>| {
        let reach = MetricsReach::User(OWNER);
        let now = (chrono::DateTime::from_timestamp_millis(now).expect("a time"), 3);
        query::count(&store(rig).ledger, window("2d"), &reach, now).await.expect("counted").total
    };
    assert_eq!(count(&rig).await, 2_500);
    metrics.try_to_tidy().await.expect("tidied");
    assert_eq!(metrics.ledger.rows().iter().map(|row| row.entries).sum::<u32>(), 2_500);
    let bytes = |rig: &Rig<MetricsFamily>| {
        let stream = crate::ledger::stream(store(rig).ledger.rows()[0].id);
        rig.daemon.journal.replay(&stream).expect("readable")
    };
    let replay = bytes(&rig);
    let (_, snapshot) = replay.snapshot.expect("it is folded");
    assert!(replay.records.is_empty() && snapshot.len() < 50_000, "{}", snapshot.len());
    rig = rig.crashed().await;
    assert_eq!(count(&rig).await, 2_500);
    assert!(store(&rig).ledger.rows().iter().all(|row| row.entries > 0));
    let streams = rig.daemon.journal.streams("metrics/").expect("readable");
    assert_eq!(streams.len(), store(&rig).ledger.rows().len(), "the old day is gone");
}

#[tokio::test]
async fn what_is_over_is_written_into_its_days_and_counted() {
    let options = Options { keep_days: 30, max_records_per_day: 200, ..Options::default() };
    let (rig, _) = rig(options.clone()).await;
    let (now, hour) = (Utc::now(), chrono::TimeDelta::hours(1));
    let past = |hours: i32| PastMetric {
        at: now - hour * hours,
        user: OWNER,
        kind: "a".to_owned(),
        repo: "r".to_owned(),
        agent_id: String::new(),
    };
    let journal = &rig.daemon.journal;
    let written = write_past(journal, &options, (1..=600).map(past)).await.expect("written");
    assert_eq!(written, 600);
    let nameless = PastMetric { kind: String::new(), ..past(1) };
    let refused = write_past(journal, &options, [nameless]).await.expect_err("refused");
    assert_eq!(refused.code, "invalid_input");
    let full = write_past(journal, &options, (0..101).map(|_| past(48))).await.expect_err("full");
    assert_eq!(full.code, "busy");
    let rig = rig.crashed().await;
    for (since, total) in [("90m", 1), ("10h", 9), ("20h", 19)] {
        let found = rig.call("metrics_query", json!({ "since": since })).await.expect("counted");
        assert_eq!(found["total"], total, "{since}");
    }
    let found = rig.call("metrics_query", json!({ "since": "25d" })).await.expect("counted");
    // A user has half of a day, of which 24 were there.
    assert_eq!(found["total"], 599 + 76);
}
