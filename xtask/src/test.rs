//! The test command: everything that has to hold before a change is taken.
//!
//! ```text
//! format ─ licences ─ guest ─ vsock ─ build ─ image
//! ─ { tests ─ contract ─ docs
//!     ─ { conformance ─ inspector ─ openapi ─ sources ─ models ─ embeddings ─ qdrant ─ e2b ─ clients beside setup }
//!     beside lints ─ fuzz-build }
//! ─ soak ─ family ─ fuzz
//! ```
//!
//! Every step runs even when an earlier one failed, unless it needs its product.
//! What did not run, and which tests skipped themselves, is said at the end.

mod checks;
mod contract;
mod family;
mod junit;
mod nextest;
pub(crate) mod outside;
mod roots;
mod vsock;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use self::junit::Tally;
use crate::repo::Repo;
use crate::steps::{Beside, StepOutcome, Steps, passed};
use crate::{docs, fuzz, guest, image, soak};

#[derive(Args)]
pub(crate) struct Test {
    /// Leave out the tests that boot virtual machines
    #[arg(long)]
    no_vm: bool,
    /// Run only this step, with what earlier runs built; may be repeated
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Take a night: 200 power cuts, 10,000 generated cases of searches and of edits, images with
    /// python and node, an encoder asked about all documents, 200 parked machines, an hour of the
    /// soak test, ten minutes for each fuzz target
    #[arg(long)]
    nightly: bool,
    /// Seconds that each fuzz target runs; 10 by default
    #[arg(long)]
    fuzz_secs: Option<u32>,
    /// Minutes that the soak test works; 5 by default
    #[arg(long)]
    soak_minutes: Option<u64>,
    /// Run only tests whose name contains this, and no other check
    filter: Option<String>,
}

impl Test {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        let mut steps = Steps::only(self.only.clone());
        if self.filter.is_none() {
            steps.run("format", || checks::format(repo));
            steps.run("licences", || checks::licences(repo));
        }
        steps.run("guest", || guest::build(repo).map(|path| passed(path.display())));
        if !self.no_vm {
            steps.run("vsock", || vsock::prepare(repo));
        }
        steps.run("build", || nextest::build(repo));
        let built = !steps.failed("guest") && !steps.failed("build");
        steps.run("image", || {
            ensure!(built, "guest or build failed");
            ["base", "code-interpreter"].iter().try_for_each(|name| image::build(repo, name))?;
            Ok(passed(repo.images().display()))
        });
        let scope = nextest::Scope {
            filter: self.filter.as_deref(),
            vms: !self.no_vm,
            images: !steps.failed("image"),
            nightly: self.nightly,
        };
        let mut tally = None;
        let beside = if self.filter.is_none() { self.giving_way() } else { Vec::new() };
        steps.run_beside(beside, |steps| {
            steps.run("tests", || {
                ensure!(built, "guest or build failed");
                let found = nextest::run(repo, &scope)?;
                let outcome = found.outcome();
                tally = Some(found);
                Ok(outcome)
            });
            if self.filter.is_none() {
                check_built(repo, steps, built, &scope);
            }
        });
        if self.filter.is_none() {
            steps.run("soak", || self.soak(repo, built && scope.images, scope.vms));
            steps.run("family", || {
                ensure!(built, "guest or build failed");
                family::check(repo)
            });
            let fuzz_secs = self.fuzz_secs.unwrap_or(if self.nightly { 600 } else { 10 });
            steps.run("fuzz", || fuzz::check(repo, fuzz_secs, &[]));
        }
        finish(&steps, tally.unwrap_or_default())
    }
}

impl Test {
    /// What needs processors and no product of other steps, for the time in which others wait.
    fn giving_way(&self) -> Vec<Beside<'static>> {
        // A step that is alone has the machine.
        let open = if self.only.is_empty() { Repo::giving_way } else { Repo::open };
        vec![
            ("lints", Box::new(move || checks::lints(&open()?))),
            (
                "fuzz-build",
                Box::new(move || fuzz::build(&open()?).map(|path| passed(path.display()))),
            ),
        ]
    }

    fn soak(&self, repo: &Repo, ready: bool, vms: bool) -> Result<StepOutcome> {
        ensure!(ready, "guest, build or image failed");
        let minutes = self.soak_minutes.unwrap_or(if self.nightly { 60 } else { 5 });
        soak::check(repo, Duration::from_secs(60 * minutes), vms)
    }
}

/// Checks what was built against its contract, its documents and programs of others.
fn check_built(repo: &Repo, steps: &mut Steps, built: bool, scope: &nextest::Scope<'_>) {
    steps.run("contract", || contract::check(repo, built));
    steps.run("docs", || match built {
        true => docs::check(repo).map(|()| passed("generated pages are fresh")),
        false => Ok(StepOutcome::Skipped("build failed".to_owned())),
    });
    // Mostly waits for archives, and they for packages and for each other.
    let target = repo.target.as_path();
    let setup: Vec<Beside<'_>> = vec![("setup", Box::new(|| roots::check(target)))];
    steps.run_beside(setup, |steps| outside::steps(repo, steps, built, scope));
}

/// Says what ran and what did not. A failed check counts as a failed test.
fn finish(steps: &Steps, tally: Tally) -> Result<()> {
    println!("\n== summary\n{}", steps.table());
    for skipped in &tally.skipped {
        println!("SKIPPED: {skipped}");
    }
    for flaky in &tally.flaky {
        println!("FLAKY: {flaky} failed and passed when it was run again");
    }
    let failures = steps.failures();
    for failed in &failures {
        println!("FAILED: {failed}");
    }
    let failed = tally.failed.max(failures.len());
    // The last line, in the form that a machine reads.
    println!("\n{} passed, {failed} failed, {} skipped", tally.passed, tally.skipped.len());
    if failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}
