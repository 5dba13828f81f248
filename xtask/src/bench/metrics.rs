//! A count of a year's metrics, 1,000 a day, beside one of the last week.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::figure::{Figure, Target, median, round};
use super::{house::BenchDaemon, kit::BenchPrograms};

const ROUNDS: usize = 200;
const RECORDS: u64 = 365_000;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let mut house = BenchDaemon::open(kit, "")?;
    house.stop()?;
    let mut command = kit.example("year_of_metrics");
    command.arg(house.path().join("state/journal"));
    command.arg(rustix::process::getuid().as_raw().to_string());
    let written: u64 = super::kit::output(command)?.trim().parse().context("a number")?;
    ensure!(written == RECORDS, "{written} records were written");
    house.start_again()?;
    let mut client = house.attach()?;
    let (mut year_us, mut week_us) = (Vec::new(), Vec::new());
    for round in 0..=kit.rounds(ROUNDS) {
        for (since, all) in [("7d", &mut week_us), ("365d", &mut year_us)] {
            let (took, found) = client.timed("metrics_query", &json!({ "since": since }))?;
            let total = found["total"].as_u64().context("a number")?;
            let wanted = if since == "7d" { 6_900..=7_000 } else { 364_900..=RECORDS };
            ensure!(wanted.contains(&total), "{total} records are counted since {since}");
            // The first round warms up.
            if round > 0 {
                all.push(took.as_secs_f64() * 1e6);
            }
        }
    }
    Ok(vec![Figure {
        name: "metrics_query",
        unit: "us",
        value: median(year_us),
        baseline: None,
        target: Target::Stated,
        remark: format!(
            "{RECORDS} records of 8 types, 20 repositories and 50 agents; of the last seven days it is {} us",
            round(median(week_us))
        ),
    }])
}
