//! Runs of DAGs that wait for a time: their memory, how late they go on, and how soon after a daemon that was killed.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::figure::{Figure, Target, median, round};
use super::memory::{REST, rss_kib};
use super::{calls::percentile, client::StdioClient, dags, house::BenchDaemon, kit::BenchPrograms};

const ROUNDS: usize = 5;
const WAITING: usize = 10_000;
const RESUMED: usize = 1_000;
/// Time between the beginning of the first run and its end of the wait, and between two such ends.
const BEGINNING: TimeDelta = TimeDelta::seconds(90);
const EACH: TimeDelta = TimeDelta::milliseconds(3);
/// Time for the last of some runs to come to its wait.
const ARRIVAL: Duration = Duration::from_secs(2);
// Of each bound three quarters are one user's.
const CONFIG: &str =
    "[registry.sessions]\nmax_sessions = 20000\n[workflow]\nmax_running = 20000\nkept = 20000\n";

/// Runs that wait, and their timers.
pub(super) fn waiting(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, CONFIG)?;
    let mut client = house.attach()?;
    begin(&mut client, Utc::now() + TimeDelta::days(1))?;
    sleep(REST);
    let (before_kib, first) = (rss_kib(house.pid())?, Utc::now() + BEGINNING);
    let until = (0..).map(|at| first + EACH * at).take(WAITING);
    let ids: Vec<_> = until.map(|until| begin(&mut client, until)).collect::<Result<_>>()?;
    sleep(REST);
    let held_bytes = (rss_kib(house.pid())? - before_kib) * 1024.0 / WAITING as f64;
    ensure!(Utc::now() < first, "the first of them went on while they were measured");
    let mut late_ms = Vec::new();
    for (at, id) in (0..).zip(&ids) {
        let late = went_on(&mut client, id)? - (first + EACH * at);
        late_ms.push(late.as_seconds_f64() * 1e3);
    }
    let figures = vec![
        Figure {
            name: "timer_lateness_p99",
            unit: "ms",
            value: percentile(&late_ms, 99),
            baseline: None,
            target: Target::AtMost(50.0),
            remark: format!(
                "{WAITING} runs that wait for a time, one each {} ms: from that until the step is taken up again, which \
                 is recorded; the median is {} ms, the latest {} ms",
                EACH.num_milliseconds(),
                round(median(late_ms.clone())),
                round(percentile(&late_ms, 100))
            ),
        },
        Figure {
            name: "waiting_10000",
            unit: "bytes",
            value: held_bytes,
            baseline: None,
            target: Target::AtMost(4096.0),
            remark: format!("resident memory of each of {WAITING} runs that wait for a time"),
        },
    ];
    Ok(figures.into_iter().filter(|figure| kit.wants(figure.name)).collect())
}

/// Runs whose time comes while there is no daemon.
pub(super) fn resumed(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let (mut house, mut empty) = (BenchDaemon::open(kit, CONFIG)?, BenchDaemon::open(kit, CONFIG)?);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        without.push(empty.kill_and_start_again()?.as_secs_f64() * 1e3);
        let mut client = house.attach()?;
        let until = Utc::now() + TimeDelta::seconds(30);
        let begun = (0..RESUMED).map(|_| begin(&mut client, until));
        let ids: Vec<_> = begun.collect::<Result<_>>()?;
        sleep(ARRIVAL);
        house.kill()?;
        let left = until - Utc::now();
        sleep(left.to_std().context("their time came too early")?);
        let began = Utc::now();
        house.start_again()?;
        let mut client = house.attach()?;
        let went: Vec<_> = ids.iter().map(|id| went_on(&mut client, id)).collect::<Result<_>>()?;
        let last = went.into_iter().max().context("runs")? - began;
        with.push(last.as_seconds_f64() * 1e3);
    }
    Ok(vec![Figure {
        name: "resume_1000",
        unit: "ms",
        value: median(with),
        baseline: Some(median(without)),
        target: Target::AtMostTimes(2.0),
        remark: format!(
            "from the start after SIGKILL until the last of {RESUMED} runs has recorded that it goes on, each with a step \
             whose time came meanwhile; the baseline is the start of a daemon without runs until `hivekeep status` \
             answers"
        ),
    }])
}

/// Begins a run that waits; its id.
fn begin(client: &mut StdioClient, until: DateTime<Utc>) -> Result<Value> {
    let until = until.format("%FT%T%.3fZ");
    let dag = format!(
        "steps: [{{ action: wait.until, with: {{ until: '{until}' }} }}, {{ action: noop }}]"
    );
    Ok(client.call("dag_start", &json!({ "yaml": dag }))?["run_id"].take())
}

/// Time at which the step that waited was taken up again.
fn went_on(client: &mut StdioClient, id: &Value) -> Result<DateTime<Utc>> {
    let run = dags::ended(client, id)?;
    ensure!(run["status"] == "succeeded", "{run}");
    Ok(run["steps"][0]["started_at"].as_str().context("a step has begun")?.parse()?)
}
