//! Writes a year of records, 1,000 a day, into the journal of a daemon that is stopped: what `metrics_query` is
//! measured on.
//!
//! `cargo run --release -p hivekeep-metrics --example year_of_metrics JOURNAL UID`
#![allow(clippy::print_stdout, reason = "the output is the point")]

use chrono::{TimeDelta, Utc};
use hivekeep_kernel::User;
use hivekeep_metrics::{Options, PastMetric, write_past};
use hivekeep_store::{Journal, Options as StoreOptions};

const DAYS: u32 = 365;
const A_DAY: u32 = 1_000;
const KINDS: [&str; 8] = [
    "review.done",
    "test.failed",
    "test.passed",
    "deploy.done",
    "task.started",
    "task.done",
    "merge.done",
    "merge.refused",
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (journal, uid) = arguments.next().zip(arguments.next()).ok_or("a folder and a user id")?;
    let (options, user) = (StoreOptions::at(journal), User::Uid(uid.parse()?));
    let opened = tokio::task::spawn_blocking(move || Journal::open(options)).await?;
    let (journal, _) = opened?;
    let (count, step) = (DAYS * A_DAY, TimeDelta::days(1) / A_DAY.try_into()?);
    // The last one is some minutes old, the first one just within a year.
    let end = Utc::now() - TimeDelta::minutes(10);
    let record = |nth: u32| PastMetric {
        at: end - step * i32::try_from(count - 1 - nth).unwrap_or_default(),
        user,
        kind: KINDS[nth as usize % KINDS.len()].to_owned(),
        repo: format!("repository-{}", nth % 20),
        agent_id: format!("agent-{}", nth % 50),
    };
    let written = write_past(&journal, &Options::default(), (0..count).map(record)).await?;
    println!("{written}");
    Ok(())
}
