//! What takes a night, in parts of two hours or less, and the page that says how each last ended.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use xshell::cmd;

use super::junit::TestTally;
use super::nextest::Scope;
use super::{before_the_build, build, checks, documents, family, lane, outside, proven, run_tests};
use crate::demo::Demo;
use crate::repo::Repo;
use crate::steps::Steps;
use crate::{fuzz, mutants, soak, upgrade};

/// Time that the soak test works.
const SOAK: Duration = Duration::from_mins(60);
/// Seconds of each fuzz target.
const FUZZ_SECS: u32 = 600;
/// Page that keeps each part's last outcome; tests/it/house/nights.rs reads it.
const PAGE: &str = "docs/nightly.md";

/// A part of what takes a night.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Night {
    /// All that machines do: every turn, storms of full size, 200 parked machines, 200 power cuts,
    /// images with python and node, two older versions replaced while their machines run
    Vm,
    /// Ten minutes for each fuzz target, two at a time where there are two processors
    Fuzz,
    /// An hour of the soak test, alone
    Soak,
    /// All versions of clients of others with sandboxes and machines, real models, agents of others, 10,000 generated
    /// cases, root file systems, rustdoc, a build and lints without clippy in the compiler's place, a share of
    /// the mutants, the demo
    Others,
}

/// Tests that are the part `vm`'s.
const OF_MACHINES: &str =
    "group(vm) | binary(vm) | test(/power_cuts$/) | package(hivekeep-machine) | test(/software/)";

impl Night {
    fn word(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Fuzz => "fuzz",
            Self::Soak => "soak",
            Self::Others => "others",
        }
    }

    pub(super) fn run(self, repo: &Repo, steps: &mut Steps, tally: &mut TestTally) -> Result<()> {
        let began = Instant::now();
        if self == Self::Fuzz {
            steps.run("fuzz", || {
                proven::unless_unchanged(&repo.root, "fuzz", true, || {
                    fuzz::check(repo, FUZZ_SECS, &[])
                })
            });
            return self.record(repo, steps, tally, began.elapsed());
        }
        let others = self == Self::Others;
        let without = format!("not ({OF_MACHINES})");
        let mut scope = Scope {
            filter: None,
            filterset: Some(if others { &without } else { OF_MACHINES }),
            vms: true,
            images: false,
            nightly: true,
            share: lane::ALL.to_owned(),
        };
        before_the_build(repo, steps);
        let built = build(repo, steps, &mut scope, others);
        match self {
            Self::Vm => {
                run_tests(repo, steps, tally, &scope);
                steps.run("upgrade", || upgrade::check(repo));
            }
            // Alone: what it holds early and late is compared, and goes with how fast it can work.
            Self::Soak | Self::Fuzz => steps.run("soak", || {
                ensure!(built && scope.images, "guest, build or image failed");
                soak::check(repo, SOAK, true)
            }),
            Self::Others => {
                run_tests(repo, steps, tally, &scope);
                documents(repo, steps, built);
                outside::steps(repo, steps, built, &scope, true);
                steps.run("family", || {
                    proven::unless_unchanged(&repo.root, "family", true, || family::check(repo))
                });
                steps.run("rustdoc", || checks::rustdoc(repo));
                steps.run("plain", || checks::plain_build(repo));
                steps.run("mutants", || mutants::nightly(repo));
                // The last: it leaves no daemon where the others look for one.
                steps.run("demo", || {
                    ensure!(built, "guest or build failed");
                    Demo::check(repo)
                });
            }
        }
        self.record(repo, steps, tally, began.elapsed())
    }

    /// Writes how it ended to its row of the page.
    fn record(self, repo: &Repo, steps: &Steps, tally: &TestTally, took: Duration) -> Result<()> {
        let said = |cmd: xshell::Cmd<'_>| cmd.quiet().read();
        let shell = &repo.shell;
        let commit = said(cmd!(shell, "git rev-parse --short=8 HEAD"))?;
        let date = said(cmd!(shell, "date --utc +%F"))?;
        let outcome = match steps.failures().as_slice() {
            [] => "green".to_owned(),
            failures => format!("red: {}", failures.join("; ").replace(['|', '\n'], " ")),
        };
        let minutes = took.as_secs().div_ceil(60);
        let tests = tally.passed;
        let row =
            format!("| {} | {outcome} | {commit} | {date} | {minutes} | {tests} |", self.word());
        let path = repo.root.join(PAGE);
        let page = with_row(&fs::read_to_string(&path)?, self.word(), &row);
        fs::write(path, page)?;
        println!("written: {PAGE}: {row}");
        Ok(())
    }
}

/// The page with another row for a part.
fn with_row(page: &str, part: &str, row: &str) -> String {
    let start = format!("| {part} |");
    let line = |line: &str| match line.starts_with(&start) {
        true => format!("{row}\n"),
        false => format!("{line}\n"),
    };
    page.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_replaces_its_own_row() {
        let page = "# Nights\n\n| part | outcome |\n|---|---|\n| vm | red |\n| soak | green |\n";
        let written = with_row(page, "vm", "| vm | green |");
        assert_eq!(written, page.replace("| vm | red |", "| vm | green |"));
    }
}
