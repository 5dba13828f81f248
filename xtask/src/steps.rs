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

/// Time that a step took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Took {
    pub(crate) wall: Duration,
    /// Time of all processors that were busy meanwhile, with anything on this machine: machines and
    /// daemons of tests are nobody's children. Of steps beside each other it is that of all.
    pub(crate) processors: Duration,
}

/// A step that ran.
pub(crate) struct StepRow {
    pub(crate) name: &'static str,
    pub(crate) outcome: StepOutcome,
    pub(crate) took: Took,
}

/// A step that runs beside others.
pub(crate) type Beside<'a> = (&'static str, Box<dyn FnOnce() -> Result<StepOutcome> + Send + 'a>);

/// Steps in the order they ran.
#[derive(Default)]
pub(crate) struct Steps {
    /// The steps that are wanted; all when empty.
    only: Vec<String>,
    /// Why the rest is left out.
    given_up: Option<&'static str>,
    rows: Vec<StepRow>,
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
            let (outcome, took) = match self.given_up {
                Some(why) => (StepOutcome::Skipped(why.to_owned()), Took::default()),
                None => timed(step),
            };
            self.ended(name, outcome, took);
        }
    }

    /// Leaves out all steps that have not begun.
    pub(crate) fn give_up(&mut self, why: &'static str) {
        self.given_up = Some(why);
    }

    /// Runs steps one after another, with others beside them, which print meanwhile.
    pub(crate) fn run_beside(&mut self, beside: Vec<Beside<'_>>, others: impl FnOnce(&mut Self)) {
        let wanted: Vec<_> = beside.into_iter().filter(|(name, _)| self.wants(name)).collect();
        if let Some(why) = self.given_up {
            for (name, _) in wanted {
                self.ended(name, StepOutcome::Skipped(why.to_owned()), Took::default());
            }
            return others(self);
        }
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

    fn ended(&mut self, name: &'static str, outcome: StepOutcome, took: Took) {
        match &outcome {
            StepOutcome::Passed(_) => {}
            StepOutcome::Failed(why) => println!("FAILED: {name}: {why}"),
            StepOutcome::Skipped(why) => println!("skipped: {name}: {why}"),
        }
        self.rows.push(StepRow { name, outcome, took });
    }

    /// True when a step failed, or was skipped for another that failed.
    pub(crate) fn failed(&self, name: &str) -> bool {
        let row = self.rows.iter().find(|row| row.name == name);
        row.is_some_and(|row| matches!(row.outcome, StepOutcome::Failed(_)))
    }

    /// Steps that failed, each with its whole reason.
    pub(crate) fn failures(&self) -> Vec<String> {
        let reason = |row: &StepRow| match &row.outcome {
            StepOutcome::Failed(why) => Some(format!("{}: {why}", row.name)),
            StepOutcome::Passed(_) | StepOutcome::Skipped(_) => None,
        };
        self.rows.iter().filter_map(reason).collect()
    }

    /// The steps that ended, in that order.
    pub(crate) fn rows(&self) -> &[StepRow] {
        &self.rows
    }

    /// The table, a line a step: wall time, then time of processors.
    pub(crate) fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let line = |StepRow { name, outcome, took }: &StepRow| {
            let (word, remark) = match outcome {
                StepOutcome::Passed(remark) => ("ok", remark),
                StepOutcome::Failed(remark) => ("FAILED", remark),
                StepOutcome::Skipped(remark) => ("skipped", remark),
            };
            let remark = remark.lines().next().unwrap_or_default();
            let (wall, busy) = (took.wall.as_secs_f64(), took.processors.as_secs_f64());
            format!("{name:width$}  {word:7}  {wall:>6.1} s  {busy:>6.1} cpu-s  {remark}")
                .trim_end()
                .to_owned()
        };
        self.rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn timed(step: impl FnOnce() -> Result<StepOutcome>) -> (StepOutcome, Took) {
    let (began, busy) = (Instant::now(), busy());
    let outcome = step().unwrap_or_else(|error| StepOutcome::Failed(format!("{error:#}")));
    let processors = self::busy().saturating_sub(busy);
    (outcome, Took { wall: began.elapsed(), processors })
}

/// Time that this machine's processors have worked since it started: user, nice, system and both
/// kinds of interrupts of `/proc/stat`, in hundredths of a second (proc_stat(5)).
fn busy() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let field = |at: usize| line.split_whitespace().nth(at)?.parse::<u64>().ok();
    Duration::from_millis([1, 2, 3, 6, 7].into_iter().filter_map(field).sum::<u64>() * 10)
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
        assert!(busy() > Duration::ZERO && rows[1].contains(" cpu-s  "));
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
        steps.give_up("tests failed");
        steps.run("soak", || panic!("it was left out"));
        steps.run_beside(beside(), |_| {});
        assert!(steps.table().lines().skip(3).all(|row| row.ends_with("tests failed")));
        assert!(rows[2].contains("skipped") && rows[2].ends_with("not asked for"));
    }
}
