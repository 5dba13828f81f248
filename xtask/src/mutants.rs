//! Faults that cargo-mutants makes in the platform's crates, one at a time, and how many of them the tests
//! of the crate see.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use xshell::cmd;

use crate::repo::{Repo, UNIFY};
use crate::setup;
use crate::steps::{StepOutcome, passed};

/// Crates that all others stand on, without `hivekeep-`.
const CRATES: [&str; 4] = ["kernel", "store", "policy", "registry"];
/// Least that tests see of a hundred mutants that compile.
const LEAST_SEEN: usize = 85;
/// Nights in which each mutant has its turn once.
const NIGHTS: u64 = 64;

/// Files that only tests and fuzz targets compile.
const FILES_LEFT_OUT: &str = "{fuzzing,test_util}*";
/// Words for people, whose wording no test fixes.
const NAMES_LEFT_OUT: &str = "<impl (fmt::)?(Debug|Display) for";

#[derive(Args)]
pub(crate) struct Mutants {
    /// Only this crate; may be repeated
    #[arg(long = "crate", value_name = "CRATE", value_parser = CRATES, default_values = CRATES)]
    crates: Vec<String>,
    /// Only each n-th mutant, from number k on: `0/64` to `63/64`. A night takes the one of 64 that
    /// the number of commits names
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
}

impl Mutants {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        println!("{}", check(repo, &self.crates, self.shard.as_deref())?);
        Ok(())
    }
}

/// Runs a night's share: the next commit's night has the next one.
pub(crate) fn nightly(repo: &Repo) -> Result<StepOutcome> {
    let shell = &repo.shell;
    let commits = cmd!(shell, "git rev-list --count HEAD").quiet().read()?;
    let commits: u64 = commits.parse().context("git counts no commits")?;
    let shard = format!("{}/{NIGHTS}", commits % NIGHTS);
    check(repo, &CRATES.map(str::to_owned), Some(&shard)).map(passed)
}

fn check(repo: &Repo, crates: &[String], shard: Option<&str>) -> Result<String> {
    setup::for_mutants(&repo.shell)?;
    let (mut all, mut lines) = (Tally::default(), Vec::new());
    for name in crates {
        let tally = mutate(repo, name, shard).with_context(|| format!("mutants of {name}"))?;
        lines.push(format!("{name}: {}", tally.line()));
        all.add(tally);
    }
    all.missed.iter().for_each(|mutant| println!("missed: {mutant}"));
    lines.iter().for_each(|line| println!("{line}"));
    ensure!(all.viable() > 0, "no mutant compiles: the logs are in {}", home(repo).display());
    let said = format!("shard {}: {}", shard.unwrap_or("0/1"), all.line());
    ensure!(all.holds(), "{said}; at least {LEAST_SEEN} %: add tests that see those above");
    Ok(said)
}

/// Tries the mutants of one crate, in a copy of the checkout: what is broken off leaves no fault behind.
fn mutate(repo: &Repo, name: &str, shard: Option<&str>) -> Result<Tally> {
    let (shell, output) = (&repo.shell, home(repo).join(name));
    fs::create_dir_all(&output)?;
    let package = format!("hivekeep-{name}");
    let shard = shard.into_iter().flat_map(|shard| ["--sharding", "round-robin", "--shard", shard]);
    // A process for each test, as elsewhere. The last argument gives the crates of others the features of
    // all, so that one target folder serves all four.
    let run = cmd!(shell, "cargo mutants --package {package} --output {output}")
        .args(["--test-tool", "nextest", "--cargo-arg", "--package", "--cargo-arg", UNIFY])
        .args(["--timeout-multiplier", "5", "--minimum-test-timeout", "60"])
        .args(["--colors", "never", "--exclude", FILES_LEFT_OUT, "--exclude-re", NAMES_LEFT_OUT])
        .args(shard)
        .env("CARGO_TARGET_DIR", home(repo).join("target"))
        .env("CARGO_INCREMENTAL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    println!("$ {run}");
    let status = Command::from(run).stdin(Stdio::null()).status()?;
    let logs = output.display();
    // 2: some were missed. 3: some never ended.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "{status}; the logs are in {logs}");
    let outcomes = fs::read_to_string(output.join("mutants.out/outcomes.json"))?;
    Tally::parse(&serde_json::from_str(&outcomes)?)
}

/// Folder of outcomes, a folder for each crate, and of what is compiled.
fn home(repo: &Repo) -> PathBuf {
    repo.target.join("mutants")
}

/// Mutants by their ends.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// A test failed.
    caught: usize,
    /// The tests did not end in five times their usual time.
    endless: usize,
    /// The compiler refused it.
    unviable: usize,
    /// All tests passed: place and change of each.
    missed: Vec<String>,
}

impl Tally {
    fn parse(outcomes: &Value) -> Result<Self> {
        let mut tally = Self::default();
        for outcome in outcomes["outcomes"].as_array().context("it has no outcomes")? {
            // The run without a fault has no mutant.
            let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() else { continue };
            match outcome["summary"].as_str() {
                Some("CaughtMutant") => tally.caught += 1,
                Some("Timeout") => tally.endless += 1,
                Some("Unviable") => tally.unviable += 1,
                Some("MissedMutant") => tally.missed.push(name.to_owned()),
                other => bail!("{name} ended as {other:?}"),
            }
        }
        Ok(tally)
    }

    fn add(&mut self, other: Self) {
        self.caught += other.caught;
        self.endless += other.endless;
        self.unviable += other.unviable;
        self.missed.extend(other.missed);
    }

    fn seen(&self) -> usize {
        self.caught + self.endless
    }

    fn viable(&self) -> usize {
        self.seen() + self.missed.len()
    }

    fn holds(&self) -> bool {
        self.seen() * 100 >= self.viable() * LEAST_SEEN
    }

    fn line(&self) -> String {
        let Self { caught, endless, unviable, missed } = self;
        let percent = self.seen() as f64 * 100.0 / self.viable().max(1) as f64;
        format!(
            "{percent:.1} % of {} seen: {caught} caught, {endless} endless, {} missed; {unviable} unviable",
            self.viable(),
            missed.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tally(ends: &[(&str, usize)]) -> Result<Tally> {
        let of =
            |end: &str| json!({ "scenario": { "Mutant": { "name": "a.rs: x" } }, "summary": end });
        let ends = ends.iter().flat_map(|(end, count)| std::iter::repeat_n(of(end), *count));
        let baseline = json!({ "scenario": "Baseline", "summary": "Success" });
        Tally::parse(&json!({ "outcomes": ends.chain([baseline]).collect::<Vec<_>>() }))
    }

    #[test]
    fn what_compiles_counts_and_85_of_a_hundred_are_enough() {
        let of = |caught, missed| {
            let ends = [
                ("CaughtMutant", caught),
                ("MissedMutant", missed),
                ("Timeout", 5),
                ("Unviable", 30),
            ];
            tally(&ends).unwrap()
        };
        assert!(of(80, 15).holds() && !of(79, 16).holds());
        assert_eq!(
            of(80, 15).line(),
            "85.0 % of 100 seen: 80 caught, 5 endless, 15 missed; 30 unviable"
        );
        assert_eq!(of(0, 1).missed, ["a.rs: x"]);
        let mut both = of(1, 1);
        both.add(of(2, 3));
        assert_eq!((both.seen(), both.viable(), both.unviable), (13, 17, 60));
        assert!(tally(&[("Failure", 1)]).is_err());
    }
}
