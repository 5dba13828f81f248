//! Steps that run when what they depend on changed.
//!
//! `tests/proven.txt` says with which content of its inputs a step last passed. It is written by a step that passes
//! where a change is made, and committed with the change; where `CI` is set it is only read. What cannot be an input,
//! such as an archive or a third-party crate's new version, is seen at night, when each step runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::steps::StepOutcome;

/// Files and folders, from the root, on which a step's outcome depends.
const INPUTS: [(&str, &[&str]); 6] = [
    (
        "browsers",
        &[
            "actors/browser",
            "actors/files/engine",
            "actors/fs",
            "actors/kernel",
            "actors/runtime",
            "actors/store",
            "actors/testkit",
        ],
    ),
    (
        "fuzz",
        &[
            "actors/fs",
            "actors/store",
            "actors/vault",
            "actors/workflow/plan",
            "actors/workspace/git",
            "actors/workspace/link",
            "actors/workspace/machine/Cargo.toml",
            "actors/workspace/machine/src/fuzzing.rs",
            "actors/workspace/machine/src/layer.rs",
            "actors/workspace/protocol",
            "doors/server/src/fuzzing.rs",
            "doors/server/src/hello.rs",
            "doors/server/src/line_splitter.rs",
            "tests/fuzz",
            "xtask/src/fuzz.rs",
        ],
    ),
    (
        "family",
        &[
            "actors/kernel",
            "actors/runtime",
            "actors/store/src/lib.rs",
            "config/Cargo.toml",
            "config/src/families.rs",
            "tests/family",
            "xtask/src/test/family.rs",
        ],
    ),
    (
        "setup",
        &[
            ".ci/run",
            "src/check/distribution.rs",
            "xtask/src/setup",
            "xtask/src/setup.rs",
            "xtask/src/test/roots",
            "xtask/src/test/roots.rs",
        ],
    ),
    (
        "models",
        &[
            "actors/model",
            "tests/clients/llama_server.py",
            "tests/clients/models.txt",
            "tests/it/models",
            "tests/it/models.rs",
            "xtask/src/test/outside/models.rs",
        ],
    ),
    (
        "embeddings",
        &[
            "actors/ingest",
            "tests/clients/embeddings.txt",
            "tests/it/knowledge/real.rs",
            "tests/quality",
            "xtask/src/test/outside/embeddings.rs",
        ],
    ),
];

const FILE: &str = "tests/proven.txt";
const HEAD: &str = "\
# With which content of its inputs a step of `cargo xtask test` last passed, and when: step, hash, day, commit, its number.
# Written by the steps and committed with what they passed for (xtask/src/test/proven.rs).
";
/// Held while the file is read and written: steps run beside each other.
static WRITING: Mutex<()> = Mutex::new(());

/// Runs a step of [`INPUTS`], unless its inputs are those with which it last passed.
///
/// # Errors
/// As the step; when git cannot say what the inputs are.
pub(super) fn unless_unchanged(
    root: &Path,
    step: &str,
    force: bool,
    check: impl FnOnce() -> Result<StepOutcome>,
) -> Result<StepOutcome> {
    let row = INPUTS.iter().find(|(name, _)| *name == step);
    let (_, inputs) = row.with_context(|| format!("`{step}` has no row in INPUTS"))?;
    let tree = Tree::of(root)?;
    let records = std::env::var_os("CI").is_none();
    tree.unless_unchanged(step, inputs, Terms { force, records }, check)
}

#[derive(Clone, Copy)]
struct Terms {
    /// The step runs in any case.
    force: bool,
    /// What passes is written down.
    records: bool,
}

/// The checkout, with what is not committed.
pub(super) struct Tree<'r> {
    root: &'r Path,
    shell: Shell,
}

impl<'r> Tree<'r> {
    pub(super) fn of(root: &'r Path) -> Result<Self> {
        let shell = Shell::new()?;
        shell.change_dir(root);
        Ok(Self { root, shell })
    }

    /// Files below these paths, or all, that are tracked or could be: relative to the root, in order.
    pub(super) fn files(&self, below: &[&str]) -> Result<BTreeSet<String>> {
        let listed =
            cmd!(self.shell, "git ls-files -z --cached --others --exclude-standard -- {below...}");
        let listed = listed.quiet().read()?;
        // One that was deleted and not committed is listed all the same.
        let there = listed.split('\0').filter(|path| self.root.join(path).is_file());
        Ok(there.map(str::to_owned).collect())
    }

    fn unless_unchanged(
        &self,
        step: &str,
        inputs: &[&str],
        terms: Terms,
        check: impl FnOnce() -> Result<StepOutcome>,
    ) -> Result<StepOutcome> {
        let hash = self.hash(inputs)?;
        let last = read(self.root)?.remove(step).filter(|last| last.hash == hash);
        if let Some(Passed { day, commit, number, .. }) = last.filter(|_| !terms.force) {
            return Ok(StepOutcome::Skipped(format!(
                "left out: its inputs are unchanged since it passed at {commit} (commit {number}, {day}); \
                 `cargo xtask test --only {step}` runs it"
            )));
        }
        let outcome = check()?;
        // An input that was edited meanwhile is not what passed.
        if terms.records && matches!(outcome, StepOutcome::Passed(_)) && self.hash(inputs)? == hash
        {
            self.record(step, hash)?;
        }
        Ok(outcome)
    }

    /// Hash over paths, modes and contents.
    fn hash(&self, inputs: &[&str]) -> Result<String> {
        let files = self.files(inputs)?;
        for input in inputs {
            let below = |file: &String| Path::new(file).starts_with(input);
            ensure!(
                files.iter().any(below),
                "no file is {input}, or below it: correct INPUTS in xtask/src/test/proven.rs"
            );
        }
        let paths: String = files.iter().map(|path| format!("{path}\n")).collect();
        let hash = cmd!(self.shell, "git hash-object --no-filters --stdin-paths").stdin(&paths);
        let hashes = hash.quiet().read()?;
        ensure!(hashes.lines().count() == files.len(), "git hashed other files than {paths}");
        let mut list = String::new();
        for (path, hash) in files.iter().zip(hashes.lines()) {
            let runs = fs::metadata(self.root.join(path))?.permissions().mode() & 0o100 != 0;
            list += &format!("{hash} {runs} {path}\n");
        }
        Ok(cmd!(self.shell, "git hash-object --stdin").stdin(&list).quiet().read()?)
    }

    fn record(&self, step: &str, hash: String) -> Result<()> {
        let (shell, said) = (&self.shell, |cmd: xshell::Cmd<'_>| cmd.quiet().read());
        let passed = Passed {
            hash,
            day: said(cmd!(shell, "date --utc +%F"))?,
            commit: said(cmd!(shell, "git rev-parse --short=8 HEAD"))?,
            number: said(cmd!(shell, "git rev-list --count HEAD"))?,
        };
        let _alone = WRITING.lock().expect("no writer panics");
        let mut all = read(self.root)?;
        all.insert(step.to_owned(), passed);
        let line = |(step, passed): (&String, &Passed)| {
            let Passed { hash, day, commit, number } = passed;
            format!("{step} {hash} {day} {commit} {number}\n")
        };
        let lines: String = all.iter().map(line).collect();
        fs::write(self.root.join(FILE), format!("{HEAD}{lines}"))?;
        println!("{FILE}: {step} passed; commit it with what it passed for");
        Ok(())
    }
}

/// When a step passed.
struct Passed {
    hash: String,
    day: String,
    commit: String,
    /// Commits up to it.
    number: String,
}

fn read(root: &Path) -> Result<BTreeMap<String, Passed>> {
    let path = root.join(FILE);
    // Without the file nothing has passed.
    let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let Ok([step, hash, day, commit, number]) = <[String; 5]>::try_from(fields) else {
            anyhow::bail!("{FILE} has a line without five fields: delete it, its step runs: {line}")
        };
        all.insert(step, Passed { hash, day, commit, number });
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
