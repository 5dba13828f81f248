//! Coverage-guided fuzzing of every parser that meets a guest, a client or a file from outside.
//!
//! The targets are in `tests/fuzz`, laid out as `cargo fuzz` wants them: with it they run as
//! `cargo fuzz run --fuzz-dir tests/fuzz -s none TARGET`. Here they are built with the flags that
//! it would pass, so that a check needs neither another tool nor a nightly compiler.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use xshell::cmd;

use crate::repo::{Repo, TRIPLE};
use crate::steps::StepOutcome;

/// Flags by which libFuzzer sees the code that an input reaches, and the comparisons that fail.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Enough for a parser, too little for one that can be made to allocate without bound.
const MEMORY_MB: u32 = 512;
/// Large enough for every form there is, small enough that runs are many.
const INPUT_BYTES: u32 = 16 * 1024;

#[derive(Args)]
pub(crate) struct Fuzz {
    /// Seconds of each target
    #[arg(long, default_value_t = 60)]
    secs: u32,
    /// Only these targets
    target: Vec<String>,
}

impl Fuzz {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        match check(repo, self.secs, &self.target)? {
            StepOutcome::Passed(said) => println!("{said}"),
            StepOutcome::Failed(why) | StepOutcome::Skipped(why) => bail!(why),
        }
        Ok(())
    }
}

/// Runs targets, all when none is named, for so long each and as many at a time as there are
/// processors.
///
/// # Errors
/// When one cannot be built or started; what it finds is in the outcome.
pub(crate) fn check(repo: &Repo, secs: u32, only: &[String]) -> Result<StepOutcome> {
    let targets = targets(repo, only)?;
    let programs = build(repo)?;
    let at_a_time = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut held, mut broken) = (Vec::new(), Vec::new());
    for some in targets.chunks(at_a_time) {
        let started: Result<Vec<_>> =
            some.iter().map(|name| Run::start(repo, &programs, name, secs)).collect();
        for run in started? {
            let name = run.name.clone();
            match run.end()? {
                Some(runs) => held.push(format!("{name} {runs}")),
                None => broken.push(name),
            }
        }
    }
    Ok(match broken.is_empty() {
        true => StepOutcome::Passed(format!("runs: {}", held.join(", "))),
        false => StepOutcome::Failed(format!(
            "{}: the input is in {}",
            broken.join(", "),
            found(repo).display()
        )),
    })
}

fn targets(repo: &Repo, only: &[String]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(home(repo).join("targets"))? {
        let path = entry?.path();
        names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    names.sort();
    if let Some(unknown) = only.iter().find(|name| !names.contains(name)) {
        bail!("`{unknown}` is not a target; there are {}", names.join(", "));
    }
    names.retain(|name| only.is_empty() || only.contains(name));
    Ok(names)
}

/// Builds and lints all targets and returns the folder of their programs.
pub(crate) fn build(repo: &Repo) -> Result<PathBuf> {
    let (shell, folder) = (&repo.shell, repo.target.join("fuzz"));
    let manifest = home(repo).join("Cargo.toml");
    // With a target named, the flags are not those of build scripts and macros.
    cmd!(
        shell,
        "cargo build --release --manifest-path {manifest} --target {TRIPLE} --target-dir {folder}"
    )
    .env("RUSTFLAGS", FLAGS)
    // The targets are the only members of their workspace, so clippy compiles and lints them alone.
    // Their Cargo.toml denies warnings.
    .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
    .run()?;
    Ok(folder.join(TRIPLE).join("release"))
}

/// A target at work.
struct Run {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Run {
    fn start(repo: &Repo, programs: &Path, name: &str, secs: u32) -> Result<Self> {
        // What is found goes to the first folder; the kept corpus, the second, stays as it is.
        let fresh = repo.target.join("fuzz/corpus").join(name);
        let kept = home(repo).join("corpus").join(name);
        for folder in [&fresh, &found(repo)] {
            fs::create_dir_all(folder)?;
        }
        ensure!(kept.is_dir(), "{} is missing: a target begins with a corpus", kept.display());
        let log = found(repo).join(format!("{name}.log"));
        let child = Command::new(programs.join(name))
            .args([&fresh, &kept])
            .arg(format!("-max_total_time={secs}"))
            .arg(format!("-rss_limit_mb={MEMORY_MB}"))
            .arg(format!("-max_len={INPUT_BYTES}"))
            .args(["-timeout=10", "-print_final_stats=1"])
            .arg(format!("-artifact_prefix={}/{name}-", found(repo).display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Number of inputs that were run; `None` when one of them broke the target.
    fn end(mut self) -> Result<Option<u64>> {
        let status = self.child.wait()?;
        let said = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        if !status.success() {
            let last: Vec<&str> = said.lines().rev().take(40).collect();
            println!("{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
            return Ok(None);
        }
        let runs = runs(&said).with_context(|| format!("{} told no number of runs", self.name))?;
        ensure!(runs > 0, "{} ran no input", self.name);
        println!("{}: {runs} runs", self.name);
        Ok(Some(runs))
    }
}

/// libFuzzer's last word on how many inputs it ran.
fn runs(said: &str) -> Option<u64> {
    let line =
        said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    line.trim().parse().ok()
}

fn home(repo: &Repo) -> PathBuf {
    repo.root.join("tests/fuzz")
}

/// Folder of logs, and of inputs that broke a target.
fn found(repo: &Repo) -> PathBuf {
    repo.target.join("fuzz/found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_tests_replay_each_target() {
        let repo = Repo::open().expect("the checkout");
        for name in targets(&repo, &[]).expect("they list") {
            let (shell, call) = (&repo.shell, format!("hivekeep_replay::replay(\"{name}\", "));
            let found = cmd!(shell, "git grep --untracked --quiet --fixed-strings {call} -- *.rs");
            found.quiet().run().unwrap_or_else(|_| panic!("no test calls {call}"));
        }
    }

    #[test]
    fn the_number_of_runs_is_read() {
        let said = "INFO: x\nstat::number_of_executed_units: 81234\nstat::peak_rss_mb: 31\n";
        assert_eq!(runs(said), Some(81_234));
        assert_eq!(runs("crashed"), None);
    }
}
