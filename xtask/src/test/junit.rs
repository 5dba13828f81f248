//! Reading nextest's report: how many tests ran, and which skipped themselves.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use roxmltree::{Document, Node};

use crate::steps::StepOutcome;

/// Prefix that a test prints before the reason when the host cannot run it.
const SKIPPED: &str = "SKIPPED: ";

/// Counts of the tests' outcomes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestTally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Tests that said they could not run here, as `test: reason`.
    pub(crate) skipped: Vec<String>,
    /// Tests that were not this run's, as `test: reason`.
    pub(crate) left_out: Vec<String>,
    /// Tests that failed and passed when they were run once more.
    pub(crate) flaky: Vec<String>,
    /// The run ended early.
    pub(crate) broken: bool,
    /// The tests that boot machines were not asked for or not possible.
    pub(crate) vms_left_out: bool,
}

impl TestTally {
    pub(crate) fn read(report: &Path) -> Result<Self> {
        let text = fs::read_to_string(report)
            .with_context(|| format!("nextest left no report at {}", report.display()))?;
        Self::parse(&text)
    }

    fn parse(report: &str) -> Result<Self> {
        let document = Document::parse(report).context("nextest's report is not XML")?;
        let mut tally = Self::default();
        for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
            let failed =
                |node: Node<'_, '_>| node.has_tag_name("failure") || node.has_tag_name("error");
            let name = case.attribute("name").unwrap_or("?");
            if case.children().any(failed) {
                tally.failed += 1;
                continue;
            }
            if case.children().any(|node| node.has_tag_name("flakyFailure")) {
                tally.flaky.push(name.to_owned());
            }
            match reason(case) {
                Some(reason) => tally.skipped.push(format!("{name}: {reason}")),
                None => tally.passed += 1,
            }
        }
        Ok(tally)
    }

    pub(crate) fn outcome(&self) -> StepOutcome {
        let skipped = self.skipped.len();
        let vms = if self.vms_left_out { ", none in virtual machines" } else { "" };
        let flaky = match self.flaky.len() {
            0 => String::new(),
            some => format!(", {some} passed only when run again"),
        };
        let summary = format!(
            "{} passed, {} failed, {skipped} skipped{flaky}{vms}",
            self.passed, self.failed
        );
        match (self.failed, self.broken) {
            (0, false) => StepOutcome::Passed(summary),
            (_, true) => StepOutcome::Failed(format!("nextest broke off: {summary}")),
            _ => StepOutcome::Failed(summary),
        }
    }
}

/// The reason why a test skipped itself.
fn reason<'d>(case: Node<'d, '_>) -> Option<&'d str> {
    case.children()
        .filter(|node| node.has_tag_name("system-out") || node.has_tag_name("system-err"))
        .filter_map(|node| node.text())
        .flat_map(str::lines)
        .find_map(|line| line.strip_prefix(SKIPPED))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="run" tests="3" failures="1" errors="0">
  <testsuite name="hivekeep::it" tests="3">
    <testcase name="config::all" time="0.1"><system-out>fine</system-out></testcase>
    <testcase name="vm::boots" time="0.1"><system-out>
SKIPPED: no qemu-system-x86_64
</system-out></testcase>
    <testcase name="mcp::lists" time="0.1"><failure type="test failure"/><system-err>SKIPPED: no</system-err></testcase>
  </testsuite>
</testsuites>"#;

    #[test]
    fn a_test_that_skipped_itself_did_not_pass() {
        let tally = TestTally::parse(REPORT).unwrap();
        assert_eq!((tally.passed, tally.failed), (1, 1));
        assert_eq!(tally.skipped, ["vm::boots: no qemu-system-x86_64"]);
        assert_eq!(
            tally.outcome(),
            StepOutcome::Failed("1 passed, 1 failed, 1 skipped".to_owned())
        );
    }

    #[test]
    fn a_test_that_needed_a_second_try_is_named() {
        let report = r#"<testsuites><testsuite name="hivekeep::vm">
            <testcase name="vm::boots"><flakyFailure type="test failure"/></testcase>
            <testcase name="vm::dies"><failure/><rerunFailure type="test failure"/></testcase>
            </testsuite></testsuites>"#;
        let tally = TestTally::parse(report).unwrap();
        assert_eq!((tally.passed, tally.failed, tally.flaky.len()), (1, 1, 1));
        let passed = TestTally { passed: 1, flaky: tally.flaky, ..TestTally::default() };
        let summary = "1 passed, 0 failed, 0 skipped, 1 passed only when run again";
        assert_eq!(passed.outcome(), StepOutcome::Passed(summary.to_owned()));
    }

    #[test]
    fn a_run_that_broke_off_did_not_pass() {
        let tally = TestTally { passed: 3, broken: true, ..TestTally::default() };
        assert!(matches!(tally.outcome(), StepOutcome::Failed(_)));
        assert!(TestTally::parse("no report").is_err());
    }
}
