//! The tests of the workspace, run by nextest: a process each, so that one
//! test's actors, signals and children are never another's.

use std::path::PathBuf;

use anyhow::Result;
use xshell::{Cmd, cmd};

use super::junit::Tally;
use super::{FEATURES, passed};
use crate::guest;
use crate::repo::Repo;
use crate::steps::Outcome;

/// Compiles all tests and, with them, the daemon.
pub(super) fn build(repo: &Repo) -> Result<Outcome> {
    command(repo).arg("--no-run").run()?;
    Ok(passed(""))
}

/// Runs the tests.
///
/// # Errors
/// When nextest itself cannot run; failed tests are in the tally.
pub(super) fn run(repo: &Repo, filter: Option<&str>, with_vms: bool) -> Result<Tally> {
    let report = report(repo);
    // A report of an earlier run must not speak for this one.
    let _ = std::fs::remove_file(&report);
    let mut run = command(repo).args(["--profile", "ci", "--no-tests", "fail"]);
    if !with_vms {
        run = run.args(["--filterset", "not group(vm)"]);
    }
    run = run.env("TEST_HIVEKEEP_GUEST", guest::installed(repo));
    run = run.env("TEST_HIVEKEEP_IMAGES", repo.images());
    let ran = run.args(filter).run();
    match Tally::read(&report) {
        Ok(mut tally) => {
            tally.vms_left_out = !with_vms;
            // A run that broke off without naming a failed test has failed all the same.
            tally.broken = ran.is_err() && tally.failed == 0;
            Ok(tally)
        }
        Err(error) => ran.map_err(Into::into).and(Err(error)),
    }
}

fn command(repo: &Repo) -> Cmd<'_> {
    let shell = &repo.shell;
    cmd!(shell, "cargo nextest run --workspace --features {FEATURES}")
}

fn report(repo: &Repo) -> PathBuf {
    repo.target.join("nextest/ci/junit.xml")
}
