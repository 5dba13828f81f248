//! A page of what a full run took: its steps by wall time and by time of processors, and its tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use roxmltree::Document;
use xshell::cmd;

use super::nextest;
use crate::repo::Repo;
use crate::steps::{StepOutcome, StepRow, Steps};

/// Tests with a row of their own.
const LONGEST: usize = 40;

/// A test that ran, and its wall time.
struct Timed {
    /// Its binary, and for one that has machines and sandboxes which of both.
    place: String,
    name: String,
    secs: f64,
}

/// Writes the page.
pub(super) fn write(repo: &Repo, steps: &Steps, to: &Path) -> Result<()> {
    let shell = &repo.shell;
    let commit = cmd!(shell, "git rev-parse --short=8 HEAD").quiet().read()?;
    let report = nextest::report(repo);
    let tests = fs::read_to_string(&report)
        .map_err(anyhow::Error::from)
        .and_then(|text| parse(&text))
        .with_context(|| format!("{}", report.display()))?;
    let processors = std::thread::available_parallelism()?;
    let head = format!(
        "# Times of a full run\n\nWritten by `cargo xtask test --times FILE` at {commit}, on {processors} \
         processors. Seconds of processors are those of the whole machine; of steps that ran beside each other \
         each has those of all.\n\n"
    );
    fs::write(to, head + &page(steps.rows(), tests)).with_context(|| to.display().to_string())?;
    println!("written: {}", to.display());
    Ok(())
}

fn page(steps: &[StepRow], mut tests: Vec<Timed>) -> String {
    let mut page = "| step | outcome | wall s | processor s |\n|---|---|--:|--:|\n".to_owned();
    for StepRow { name, outcome, took } in steps {
        let word = match outcome {
            StepOutcome::Passed(_) => "ok",
            StepOutcome::Failed(_) => "failed",
            StepOutcome::Skipped(_) => "left out",
        };
        let (wall, busy) = (took.wall.as_secs_f64(), took.processors.as_secs_f64());
        page += &format!("| {name} | {word} | {wall:.0} | {busy:.0} |\n");
    }
    let mut places: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for Timed { place, secs, .. } in &tests {
        let (count, sum) = places.entry(place).or_default();
        (*count, *sum) = (*count + 1, *sum + secs);
    }
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_by(|(_, (_, one)), (_, (_, other))| other.total_cmp(one));
    page += "\n| tests of | number | wall s, all |\n|---|--:|--:|\n";
    for (place, (count, sum)) in places {
        page += &format!("| {place} | {count} | {sum:.1} |\n");
    }
    tests.sort_by(|one, other| other.secs.total_cmp(&one.secs));
    page +=
        &format!("\nThe {} longest:\n\n| test | wall s |\n|---|--:|\n", LONGEST.min(tests.len()));
    for Timed { place, name, secs } in tests.iter().take(LONGEST) {
        page += &format!("| {place}: `{name}` | {secs:.1} |\n");
    }
    page
}

fn parse(report: &str) -> Result<Vec<Timed>> {
    let document = Document::parse(report).context("nextest's report is not XML")?;
    let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
    let timed = |case: roxmltree::Node<'_, '_>| {
        let suite = case.parent().and_then(|suite| suite.attribute("name")).unwrap_or("?");
        let name = case.attribute("name").unwrap_or("?").to_owned();
        let place = match (suite, name.split_once("::")) {
            ("hivekeep::vm", Some((kind, _))) => format!("{suite} {kind}"),
            _ => suite.to_owned(),
        };
        let secs = case.attribute("time").and_then(|time| time.parse().ok()).unwrap_or_default();
        Timed { place, name, secs }
    };
    Ok(cases.map(timed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::{Took, passed};
    use std::time::Duration;

    #[test]
    fn steps_come_in_order_and_tests_by_their_time() {
        let report = r#"<testsuites>
            <testsuite name="hivekeep::vm">
              <testcase name="vm::boots" time="4.5"/><testcase name="sandbox::boots" time="0.5"/>
            </testsuite>
            <testsuite name="hivekeep-team"><testcase name="undo" time="12"/></testsuite>
            </testsuites>"#;
        let took =
            Took { wall: Duration::from_secs(60), processors: Duration::from_millis(118_400) };
        let steps = [StepRow { name: "build", outcome: passed(""), took }];
        let page = page(&steps, parse(report).unwrap());
        for row in [
            "| build | ok | 60 | 118 |",
            "| hivekeep-team | 1 | 12.0 |\n| hivekeep::vm vm | 1 | 4.5 |",
            "The 3 longest:\n\n| test | wall s |\n|---|--:|\n| hivekeep-team: `undo` | 12.0 |",
        ] {
            assert!(page.contains(row), "{row} is not in\n{page}");
        }
    }
}
