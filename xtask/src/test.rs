//! The test command: everything that has to hold before a change is taken.
//!
//! ```text
//! machine ─ format ─ licences ─ { build beside guest ─ vsock ─ environments ─ image } ─ lints ─ tests
//! ─ contract ─ docs ─ changelog
//! ─ { conformance ─ inspector ─ openapi ─ sources ─ models ─ embeddings ─ qdrant ─ clients beside e2b ─ setup ─ soak }
//! ─ family ─ fuzz
//! ```
//!
//! Every step runs even when an earlier one failed, unless it needs its product; where `CI` is set a
//! run whose tests failed ends there. What did not run, and why, is said at the end: what takes turns
//! (`lane`), what depends on nothing that changed (`proven`), and what a test could not do here.

mod checks;
mod contract;
mod family;
mod junit;
pub(crate) mod lane;
pub(crate) mod nextest;
mod night;
pub(crate) mod outside;
mod proven;
mod quick;
mod roots;
mod times;
pub(crate) mod vsock;

use std::path::PathBuf;
use std::sync::mpsc;

use anyhow::{Context, Result, ensure};
use clap::Args;

use self::junit::TestTally;
use self::night::Night;
use crate::repo::Repo;
use crate::steps::{Beside, StepOutcome, Steps, passed};
use crate::{changelog, docs, fuzz, guest, image, setup};

/// Seconds of each fuzz target.
const FUZZ_SECS: u32 = 10;

#[derive(Args)]
pub(crate) struct Test {
    /// Check in some minutes what changed since origin/main, and what depends on it
    #[arg(long, conflicts_with_all = ["only", "nightly", "share", "filter"])]
    quick: bool,
    /// With --quick: also two machines, on which most of what one machine does is tried
    #[arg(long, requires = "quick")]
    vm: bool,
    /// Leave out the tests that boot virtual machines
    #[arg(long)]
    no_vm: bool,
    /// Run only this step, with what earlier runs built; may be repeated
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Which of the tests that take turns: 1/3, 2/3, 3/3 or all; by default it goes by the number of
    /// commits. `all` also runs what depends on nothing that changed
    #[arg(long, value_parser = ["1/3", "2/3", "3/3", "all"])]
    share: Option<String>,
    /// Run a part of what takes a night, two hours or so, and write its outcome to docs/nightly.md
    #[arg(long, value_enum, value_name = "PART")]
    nightly: Option<Night>,
    /// Write what each step and the longest tests took to this file
    #[arg(long, value_name = "FILE")]
    times: Option<PathBuf>,
    /// Run only tests whose name contains this, and no other check
    filter: Option<String>,
}

impl Test {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        if self.quick {
            return quick::run(repo, self.vm);
        }
        let mut steps = Steps::only(self.only.clone());
        let mut tally = TestTally::default();
        match self.nightly {
            Some(night) => night.run(repo, &mut steps, &mut tally)?,
            None => self.steps(repo, &mut steps, &mut tally)?,
        }
        if let Some(file) = &self.times {
            times::write(repo, &steps, file)?;
        }
        finish(&steps, &tally)
    }

    fn steps(&self, repo: &Repo, steps: &mut Steps, tally: &mut TestTally) -> Result<()> {
        let share = match (&self.share, &self.filter) {
            (Some(share), _) => share.clone(),
            // What somebody names is run.
            (None, Some(_)) => lane::ALL.to_owned(),
            (None, None) => lane::share_of_this_run(repo)?,
        };
        let whole = self.filter.is_none();
        if whole {
            before_the_build(repo, steps);
        }
        let mut scope = nextest::Scope {
            filter: self.filter.as_deref(),
            filterset: None,
            vms: !self.no_vm,
            images: false,
            nightly: false,
            share,
        };
        let built = build(repo, steps, &mut scope, whole);
        run_tests(repo, steps, tally, &scope);
        if whole {
            if steps.failed("tests") && std::env::var_os("CI").is_some() {
                steps.give_up("left out: tests failed");
            }
            self.after_the_tests(repo, steps, built, &scope);
        }
        Ok(())
    }

    /// Checks what was built against its contract, its documents and programs of others.
    fn after_the_tests(
        &self,
        repo: &Repo,
        steps: &mut Steps,
        built: bool,
        scope: &nextest::Scope<'_>,
    ) {
        // A step that is asked for by its name runs.
        let force = scope.all() || !self.only.is_empty();
        let root = repo.root.as_path();
        documents(repo, steps, built);
        outside::steps(repo, steps, built, scope, force);
        steps.run("family", || {
            ensure!(built, "guest or build failed");
            proven::unless_unchanged(root, "family", force, || family::check(repo))
        });
        steps.run("fuzz", || {
            proven::unless_unchanged(root, "fuzz", force, || fuzz::check(repo, FUZZ_SECS, &[]))
        });
    }
}

/// What needs no build: it says soon what is wrong.
fn before_the_build(repo: &Repo, steps: &mut Steps) {
    machine(repo, steps);
    steps.run("format", || checks::format(repo));
    steps.run("licences", || checks::licences(repo));
}

/// Brings what the tests take from this machine.
fn machine(repo: &Repo, steps: &mut Steps) {
    steps.run("machine", || match setup::for_testing(repo) {
        Ok(()) => Ok(passed("nothing is missing")),
        Err(why) if !rustix::process::geteuid().is_root() => {
            Ok(StepOutcome::Skipped(format!("{why:#}")))
        }
        Err(why) => Err(why),
    });
}

/// Builds everything that tests take; true when the programs are there.
fn build(
    repo: &Repo,
    steps: &mut Steps,
    scope: &mut nextest::Scope<'_>,
    with_environments: bool,
) -> bool {
    // Each has a target folder of its own, and the end of the guest's takes one processor.
    let (built, daemon) = mpsc::channel();
    let mut beside: Vec<Beside<'_>> = vec![(
        "guest",
        Box::new(|| guest::build(&Repo::open()?).map(|path| passed(path.display()))),
    )];
    if scope.vms {
        let share = scope.share.clone();
        beside.push(("vsock", Box::new(move || vsock::prepare(&Repo::open()?, &share))));
    }
    if with_environments {
        beside.push(("environments", Box::new(|| outside::prepare(&Repo::open()?))));
    }
    beside.push(("image", Box::new(move || images(&daemon))));
    steps.run_beside(beside, |steps| {
        let tell = move || {
            let _nobody_wants_images = built.send(());
        };
        steps.run("build", || nextest::build(repo, tell));
    });
    if with_environments {
        steps.run("lints", || checks::lints(repo, repo.cargo_all(&["test"])));
    }
    scope.images = !steps.failed("image");
    !steps.failed("guest") && !steps.failed("build")
}

/// Makes the images as soon as the daemon is there, which makes them.
fn images(daemon: &mpsc::Receiver<()>) -> Result<StepOutcome> {
    daemon.recv().context("the daemon was not built")?;
    let repo = Repo::open()?;
    ensure!(guest::installed(&repo).exists(), "the guest was not built");
    ["base", "code-interpreter"].iter().try_for_each(|name| image::build(&repo, name))?;
    Ok(passed(repo.images().display()))
}

fn run_tests(repo: &Repo, steps: &mut Steps, tally: &mut TestTally, scope: &nextest::Scope<'_>) {
    let built = !steps.failed("guest") && !steps.failed("build");
    steps.run("tests", || {
        ensure!(built, "guest or build failed");
        *tally = nextest::run(repo, scope)?;
        Ok(tally.outcome())
    });
}

fn documents(repo: &Repo, steps: &mut Steps, built: bool) {
    steps.run("contract", || contract::check(repo, built));
    steps.run("docs", || match built {
        true => docs::check(repo).map(|()| passed("generated pages are fresh")),
        false => Ok(StepOutcome::Skipped("build failed".to_owned())),
    });
    steps.run("changelog", || changelog::check(repo));
}

/// GiB free where the build and the tests write: a full disk fails tests of every kind.
fn room_left() -> String {
    let free = |place: &str| match rustix::fs::statvfs(place) {
        Ok(disk) => format!("{} GiB of {place}", (disk.f_bavail * disk.f_frsize) >> 30),
        Err(error) => format!("{place}: {error}"),
    };
    format!("{}, {}", free("."), free("/tmp"))
}

/// Says what ran and what did not. A failed check counts as a failed test.
fn finish(steps: &Steps, tally: &TestTally) -> Result<()> {
    println!("\n== summary\n{}", steps.table());
    println!("left on the disks: {}", room_left());
    for (what, names) in [("SKIPPED", &tally.skipped), ("LEFT OUT", &tally.left_out)] {
        names.iter().for_each(|name| println!("{what}: {name}"));
    }
    for flaky in &tally.flaky {
        println!("FLAKY: {flaky} failed and passed when it was run again");
    }
    let failures = steps.failures();
    for failed in &failures {
        println!("FAILED: {failed}");
    }
    let failed = tally.failed.max(failures.len());
    let skipped = tally.skipped.len() + tally.left_out.len();
    // The last line, in the form that a machine reads.
    println!("\n{} passed, {failed} failed, {skipped} skipped", tally.passed);
    if failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}
