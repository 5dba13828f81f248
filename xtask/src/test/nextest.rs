//! The tests of the workspace, run by nextest: a process each, so that one
//! test's actors, signals and children are never another's.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xshell::Cmd;

use super::junit::TestTally;
use super::outside::BROWSERS;
use super::{lane, vsock};
use crate::guest;
use crate::repo::Repo;
use crate::steps::{StepOutcome, passed};

/// Compiles all tests and, with them, the daemon; clippy lints what it compiles. Calls `daemon` as soon
/// as that program is there, minutes before the rest.
pub(super) fn build(repo: &Repo, daemon: impl FnOnce()) -> Result<StepOutcome> {
    let build =
        command(repo).args(["--no-run", "--cargo-message-format", "json-render-diagnostics"]);
    println!("$ {build}");
    let mut cargo = Command::from(build).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let told = cargo.stdout.take().context("cargo has an output")?;
    let mut daemon = Some(daemon);
    for line in BufReader::new(told).lines() {
        if is_daemon(&line?) {
            daemon.take().into_iter().for_each(|daemon| daemon());
        }
    }
    let status = cargo.wait()?;
    ensure!(status.success(), "cargo ended with {status}");
    Ok(passed(""))
}

/// True for cargo's message that the daemon was built, or need not be.
fn is_daemon(message: &str) -> bool {
    let message: Value = serde_json::from_str(message).unwrap_or_default();
    let name = &message["target"]["name"];
    // Its tests are a program of the same name.
    let built = message["executable"].is_string() && message["profile"]["test"] == false;
    built && name == "hivekeep" && message["reason"] == "compiler-artifact"
}

/// Scope of a test run: the tests, and the machine they run on.
pub(super) struct Scope<'a> {
    /// Only tests whose name contains this.
    pub(super) filter: Option<&'a str>,
    /// Only tests of this filterset.
    pub(super) filterset: Option<&'a str>,
    /// Also those that boot virtual machines.
    pub(super) vms: bool,
    /// The images are built; without them tests of workspaces skip themselves.
    pub(super) images: bool,
    /// As much of the generated tests as a night has time for, and what is a night's alone.
    pub(super) nightly: bool,
    /// Which of the tests that take turns: `1/3`, `2/3`, `3/3` or `all`.
    pub(super) share: String,
}

impl Scope<'_> {
    /// True when nothing takes turns or is left out because it did not change.
    pub(super) fn all(&self) -> bool {
        self.share == lane::ALL
    }
}

/// How much each test does whose amount can be chosen.
pub(super) const NIGHTLY: [(&str, &str); 7] = [
    (lane::NIGHTLY, "1"),
    ("TEST_HIVEKEEP_POWER_CUTS", "200"),
    ("TEST_HIVEKEEP_FILE_CASES", "10000"),
    ("TEST_HIVEKEEP_AUDIT_CALLS", "100000"),
    ("TEST_HIVEKEEP_STORM", "full"),
    ("TEST_HIVEKEEP_QUALITY", "all"),
    ("TEST_HIVEKEEP_SLEEPERS", "200"),
];

/// Tests at a time: one more than there are processors, for tests wait for disks, clocks and machines.
pub(super) fn threads() -> Result<String> {
    Ok((std::thread::available_parallelism()?.get() + 1).to_string())
}

/// Runs the tests.
///
/// # Errors
/// When nextest itself cannot run; failed tests are in the tally.
pub(super) fn run(repo: &Repo, scope: &Scope<'_>) -> Result<TestTally> {
    let mut run = command(repo).args(["--profile", "ci", "--no-tests", "fail"]);
    run = run.args(["--test-threads", &threads()?]);
    let no_machines = (!scope.vms).then_some("not group(vm)");
    // Who names a test has it run; in a whole run these are a step of their own.
    let no_browsers = scope.filter.is_none().then(|| format!("not ({BROWSERS})"));
    let filtersets = no_machines.into_iter().chain(no_browsers.as_deref()).chain(scope.filterset);
    let filtersets: Vec<String> = filtersets.map(|set| format!("({set})")).collect();
    if !filtersets.is_empty() {
        run = run.arg("--filterset").arg(filtersets.join(" & "));
    }
    let mut tally = ran(repo, in_scope(repo, run, scope)?.args(scope.filter))?;
    tally.vms_left_out = !scope.vms;
    let scenes = in_scope(repo, lane::program(repo), scope)?;
    let left_out = lane::left_out(scenes, scope.filter, scope.vms)?;
    tally.skipped.extend(left_out.skipped);
    tally.left_out.extend(left_out.later);
    Ok(tally)
}

fn in_scope<'r>(repo: &'r Repo, run: Cmd<'r>, scope: &Scope<'_>) -> Result<Cmd<'r>> {
    let nightly = if scope.nightly { &NIGHTLY[..] } else { &[] };
    let named = scope.filter.is_some_and(lane::names_scenes).then_some((lane::NIGHTLY, "1"));
    let amounts = nightly.iter().copied().chain(named);
    let run = run.env(lane::SHARE, &scope.share).envs(amounts);
    with_programs(repo, run, scope.images)
}

/// Runs nextest with the profile `ci` and reads its report.
pub(crate) fn ran(repo: &Repo, run: Cmd<'_>) -> Result<TestTally> {
    let report = report(repo);
    // A report of an earlier run must not speak for this one.
    let _ = std::fs::remove_file(&report);
    let ran = run.run();
    match TestTally::read(&report) {
        Ok(mut tally) => {
            // A run that broke off without naming a failed test has failed all the same.
            tally.broken = ran.is_err() && tally.failed == 0;
            Ok(tally)
        }
        Err(error) => ran.map_err(Into::into).and(Err(error)),
    }
}

/// Tells tests where the programs are that they start, and that this program lists what they skip.
pub(crate) fn with_programs<'r>(repo: &'r Repo, run: Cmd<'r>, images: bool) -> Result<Cmd<'r>> {
    let mut run = run.env("TEST_HIVEKEEP_COUNTS_SKIPS", "1");
    for (variable, program) in [
        ("TEST_HIVEKEEP_GUEST", guest::installed(repo)),
        ("TEST_HIVEKEEP_VSOCK_PROBE", guest::vsock_probe(repo)),
        ("TEST_HIVEKEEP_VHOST_DEVICE_VSOCK", vsock::device(repo)),
    ] {
        if program.exists() {
            run = run.env(variable, program);
        }
    }
    if images {
        run = run.env("TEST_HIVEKEEP_IMAGES", repo.images());
    }
    Ok(run)
}

/// All tests.
fn command(repo: &Repo) -> Cmd<'_> {
    repo.cargo_all(&["nextest", "run"])
}

pub(super) fn report(repo: &Repo) -> PathBuf {
    repo.target.join("nextest/ci/junit.xml")
}
