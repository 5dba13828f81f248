//! The tests of the workspace, run by nextest: a process each, so that one
//! test's actors, signals and children are never another's.

use std::path::PathBuf;

use anyhow::Result;
use xshell::{Cmd, cmd};

use super::junit::Tally;
use super::vsock;
use crate::guest;
use crate::repo::{FEATURES, Repo};
use crate::steps::{StepOutcome, passed};

/// Compiles all tests and, with them, the daemon.
pub(super) fn build(repo: &Repo) -> Result<StepOutcome> {
    command(repo).arg("--no-run").run()?;
    Ok(passed(""))
}

/// Scope of a test run: the tests, and the machine they run on.
pub(super) struct Scope<'a> {
    /// Only tests whose name contains this.
    pub(super) filter: Option<&'a str>,
    /// Also those that boot virtual machines.
    pub(super) vms: bool,
    /// The images are built; without them tests of workspaces skip themselves.
    pub(super) images: bool,
    /// As much of the generated tests as a night has time for.
    pub(super) nightly: bool,
}

/// How much each test does whose amount can be chosen.
pub(super) const NIGHTLY: [(&str, &str); 6] = [
    ("TEST_HIVEKEEP_POWER_CUTS", "200"),
    ("TEST_HIVEKEEP_FILE_CASES", "10000"),
    ("TEST_HIVEKEEP_AUDIT_CALLS", "100000"),
    ("TEST_HIVEKEEP_SOFTWARE", "1"),
    ("TEST_HIVEKEEP_QUALITY", "all"),
    ("TEST_HIVEKEEP_SLEEPERS", "200"),
];

/// Runs the tests.
///
/// # Errors
/// When nextest itself cannot run; failed tests are in the tally.
pub(super) fn run(repo: &Repo, scope: &Scope<'_>) -> Result<Tally> {
    let report = report(repo);
    // A report of an earlier run must not speak for this one.
    let _ = std::fs::remove_file(&report);
    let mut run = command(repo).args(["--profile", "ci", "--no-tests", "fail"]);
    if !scope.vms {
        run = run.args(["--filterset", "not group(vm)"]);
    }
    run = run.env("TEST_HIVEKEEP_GUEST", guest::installed(repo));
    if scope.images {
        run = run.env("TEST_HIVEKEEP_IMAGES", repo.images());
    }
    if scope.nightly {
        run = run.envs(NIGHTLY);
    }
    for (variable, program) in [
        ("TEST_HIVEKEEP_VSOCK_PROBE", guest::vsock_probe(repo)),
        ("TEST_HIVEKEEP_VHOST_DEVICE_VSOCK", vsock::device(repo)),
    ] {
        if program.exists() {
            run = run.env(variable, program);
        }
    }
    let ran = run.args(scope.filter).run();
    match Tally::read(&report) {
        Ok(mut tally) => {
            tally.vms_left_out = !scope.vms;
            // A run that broke off without naming a failed test has failed all the same.
            tally.broken = ran.is_err() && tally.failed == 0;
            Ok(tally)
        }
        Err(error) => ran.map_err(Into::into).and(Err(error)),
    }
}

/// All tests, with the features of the build.
pub(super) fn command(repo: &Repo) -> Cmd<'_> {
    let shell = &repo.shell;
    cmd!(shell, "cargo nextest run --workspace --features {FEATURES}")
}

fn report(repo: &Repo) -> PathBuf {
    repo.target.join("nextest/ci/junit.xml")
}
