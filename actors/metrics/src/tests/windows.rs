//! Windows against a simple model: whatever the times, segments and crashes, each record is counted once.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_store::{Journal, Options as StoreOptions};
use proptest::prelude::*;

use super::{OTHER, OWNER, window};
use crate::{
    MetricsReach,
    ledger::MetricsLedger,
    query,
    tally::{DayBounds, MetricEntry},
};

const NOW_MS: i64 = 1_790_000_000_000;

#[derive(Debug, Clone)]
enum Step {
    Record { minutes_ago: i64, kind: u8, other: bool },
    Crash,
    Tidy { days_ago: i64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let record = (0_i64..6 * 24 * 60, 0_u8..4, any::<bool>())
        .prop_map(|(minutes_ago, kind, other)| Step::Record { minutes_ago, kind, other });
    let step = prop_oneof![
        20 => record,
        1 => Just(Step::Crash),
        2 => (0_i64..6).prop_map(|days_ago| Step::Tidy { days_ago }),
    ];
    prop::collection::vec(step, 1..120)
}

async fn open(folder: &std::path::Path) -> (Journal, Arc<MetricsLedger>) {
    let options = StoreOptions::at(folder);
    let opened = tokio::task::spawn_blocking(move || Journal::open(options)).await;
    let (journal, _) = opened.expect("no panic").expect("it opens");
    let bounds = DayBounds { entries: 1 << 20, bytes: 1 << 30 };
    let oldest = now().date_naive() - TimeDelta::days(400);
    let (ledger, _) = MetricsLedger::load(journal.clone(), bounds, oldest).expect("it loads");
    (journal, Arc::new(ledger))
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp_millis(NOW_MS).expect("a time")
}

async fn check(ledger: &Arc<MetricsLedger>, model: &[MetricEntry]) {
    for since in ["1m", "59m", "7h", "1d", "25h", "2d", "71h", "5d", "365d"] {
        let from = (now() - window(since).length()).timestamp_millis();
        for reach in [MetricsReach::All, MetricsReach::User(OWNER), MetricsReach::User(OTHER)] {
            let found = query::count(ledger, window(since), &reach, (now(), 366)).await;
            let found = found.expect("counted");
            let within: Vec<_> =
                model.iter().filter(|it| it.at_ms >= from && reach.sees_user(it.user)).collect();
            assert_eq!(found.total, within.len() as u64, "{since} {reach:?}");
            for kind in 0..4_u8 {
                let kind = format!("k{kind}");
                let is = within.iter().filter(|it| it.kind == kind).count() as u64;
                let row = found.by_type.iter().find(|row| row.key == kind);
                assert_eq!(row.map_or(0, |row| row.count), is, "{since} {reach:?} {kind}");
            }
            let mut times: Vec<_> = within.iter().map(|it| it.at_ms).collect();
            times.sort_unstable_by(|a, b| b.cmp(a));
            let told: Vec<_> =
                found.events.iter().map(|it| it.timestamp.timestamp_millis()).collect();
            if model.is_sorted_by_key(|it| it.at_ms) {
                times.truncate(10);
                assert_eq!(told, times, "{since} {reach:?}");
            }
        }
    }
}

async fn run(steps: Vec<Step>, in_order: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut journal, mut ledger) = open(folder.path()).await;
    let mut model = Vec::new();
    let mut ages: Vec<_> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Record { minutes_ago, .. } => Some(*minutes_ago),
            _ => None,
        })
        .collect();
    if in_order {
        ages.sort_unstable();
    }
    for step in steps {
        match step {
            Step::Record { kind, other, .. } => {
                let minutes_ago = ages.pop().expect("one for each");
                let entry = MetricEntry {
                    at_ms: NOW_MS - minutes_ago * 60_000 - 1,
                    user: Some(if other { OTHER } else { OWNER }),
                    kind: format!("k{kind}"),
                    repo: String::new(),
                    agent_id: String::new(),
                    data: Default::default(),
                };
                let durable = ledger.add(entry.clone()).expect("decided");
                durable.await.expect("durable");
                model.push(entry);
            }
            Step::Crash => {
                drop(ledger);
                journal.close().await;
                (journal, ledger) = open(folder.path()).await;
            }
            Step::Tidy { days_ago } => {
                let today = now().date_naive() - TimeDelta::days(days_ago);
                ledger.tidy(today).await.expect("tidied");
            }
        }
    }
    check(&ledger, &model).await;
    drop(ledger);
    journal.close().await;
    let (journal, ledger) = open(folder.path()).await;
    check(&ledger, &model).await;
    journal.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn each_record_is_counted_once_in_any_window(steps in steps(), in_order in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(run(steps, in_order));
    }
}
