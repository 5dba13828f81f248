//! Steps of a run and the table that closes it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Outcome of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// The step ran and holds; with a remark.
    Passed(String),
    /// The step ran and does not hold.
    Failed(String),
    /// The step did not run, with the reason.
    Skipped(String),
}

pub(crate) fn passed(remark: impl std::fmt::Display) -> StepOutcome {
    StepOutcome::Passed(remark.to_string())
}

/// A step that runs beside others.
pub(crate) type Beside<'a> = (&'static str, Box<dyn FnOnce() -> Result<StepOutcome> + Send + 'a>);

/// Steps in the order they ran.
#[derive(Default)]
pub(crate) struct Steps {
    /// The steps that are wanted; all when empty.
    only: Vec<String>,
    rows: Vec<(&'static str, StepOutcome, Duration)>,
}

impl Steps {
    /// Steps of which only these run; the others are no rows of the table.
    pub(crate) fn only(only: Vec<String>) -> Self {
        Self { only, ..Self::default() }
    }

    /// Runs a step. An error is a failed step; the next ones still run.
    pub(crate) fn run(&mut self, name: &'static str, step: impl FnOnce() -> Result<StepOutcome>) {
        if self.wants(name) {
            println!("\n== {name}");
            let (outcome, took) = timed(step);
            self.ended(name, outcome, took);
        }
    }

    /// Runs steps one after another, with others beside them, which print meanwhile.
    pub(crate) fn run_beside(&mut self, beside: Vec<Beside<'_>>, others: impl FnOnce(&mut Self)) {
        let wanted: Vec<_> = beside.into_iter().filter(|(name, _)| self.wants(name)).collect();
        for (name, _) in &wanted {
            println!("\n== {name}, beside the next");
        }
        std::thread::scope(|scope| {
            let each = |(name, step): Beside<'_>| {
                let step = || {
                    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| bail!("it panicked"))
                };
                (name, timed(step))
            };
            let beside = scope.spawn(move || wanted.into_iter().map(each).collect::<Vec<_>>());
            others(self);
            for (name, (outcome, took)) in beside.join().expect("panics are caught") {
                self.ended(name, outcome, took);
            }
        });
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }

    fn ended(&mut self, name: &'static str, outcome: StepOutcome, took: Duration) {
        match &outcome {
            StepOutcome::Passed(_) => {}
            StepOutcome::Failed(why) => println!("FAILED: {name}: {why}"),
            StepOutcome::Skipped(why) => println!("skipped: {name}: {why}"),
        }
        self.rows.push((name, outcome, took));
    }

    /// True when a step failed, or was skipped for another that failed.
    pub(crate) fn failed(&self, name: &str) -> bool {
        let row = self.rows.iter().find(|(row, ..)| *row == name);
        row.is_some_and(|(_, outcome, _)| matches!(outcome, StepOutcome::Failed(_)))
    }

    /// Steps that failed, each with its whole reason.
    pub(crate) fn failures(&self) -> Vec<String> {
        let reason = |(name, outcome, _): &(&str, StepOutcome, Duration)| match outcome {
            StepOutcome::Failed(why) => Some(format!("{name}: {why}")),
            StepOutcome::Passed(_) | StepOutcome::Skipped(_) => None,
        };
        self.rows.iter().filter_map(reason).collect()
    }

    /// The table, a line a step.
    pub(crate) fn table(&self) -> String {
        let width = self.rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
        let line = |(name, outcome, took): &(&str, StepOutcome, Duration)| {
            let (word, remark) = match outcome {
                StepOutcome::Passed(remark) => ("ok", remark),
                StepOutcome::Failed(remark) => ("FAILED", remark),
                StepOutcome::Skipped(remark) => ("skipped", remark),
            };
            let remark = remark.lines().next().unwrap_or_default();
            format!("{name:width$}  {word:7}  {:>6.1} s  {remark}", took.as_secs_f64())
                .trim_end()
                .to_owned()
        };
        self.rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn timed(step: impl FnOnce() -> Result<StepOutcome>) -> (StepOutcome, Duration) {
    let began = Instant::now();
    let outcome = step().unwrap_or_else(|error| StepOutcome::Failed(format!("{error:#}")));
    (outcome, began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_fails_its_step_and_the_rest_goes_on() {
        let mut steps = Steps::default();
        steps.run("format", || Ok(StepOutcome::Passed(String::new())));
        steps.run("lints", || bail!("three warnings"));
        steps.run("images", || Ok(StepOutcome::Skipped("not asked for".to_owned())));
        assert!(steps.failed("lints") && !steps.failed("format") && !steps.failed("images"));
        assert_eq!(steps.failures(), ["lints: three warnings"]);
        let table = steps.table();
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[1].starts_with("lints   FAILED") && rows[1].ends_with("three warnings"));
        let mut one = Steps::only(vec!["tests".to_owned()]);
        one.run("format", || bail!("not wanted"));
        one.run("tests", || Ok(StepOutcome::Passed(String::new())));
        assert_eq!((one.failures().len(), one.table().lines().count()), (0, 1));
        let mut both = Steps::default();
        let beside = || -> Vec<Beside<'_>> {
            vec![
                ("waits", Box::new(|| bail!("it waited"))),
                ("panics", Box::new(|| panic!("{}", "on purpose"))),
                ("holds", Box::new(|| Ok(passed("after both")))),
            ]
        };
        both.run_beside(beside(), |steps| steps.run("works", || Ok(passed(""))));
        assert!(both.failed("waits") && both.failed("panics") && !both.failed("works"));
        assert!(both.table().ends_with("after both"), "{}", both.table());
        one.run_beside(beside(), |steps| steps.run("tests", || Ok(passed(""))));
        assert_eq!((one.failures().len(), one.table().lines().count()), (0, 2));
        assert!(rows[2].contains("skipped") && rows[2].ends_with("not asked for"));
    }
}
