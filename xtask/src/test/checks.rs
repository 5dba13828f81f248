//! Checks that run no test: form, lints, licences and who may use what.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde_json::Value;
use xshell::{Cmd, cmd};

use crate::repo::{Repo, UNIFY};
use crate::steps::{StepOutcome, passed};
use crate::unify;

pub(super) fn format(repo: &Repo) -> Result<StepOutcome> {
    let shell = &repo.shell;
    cmd!(shell, "cargo fmt --all --check").run()?;
    unify::check(repo)?;
    Ok(passed(""))
}

/// Counts what clippy said while it compiled: a `cargo test` of the same packages says it again.
pub(super) fn lints(repo: &Repo, build: Cmd<'_>) -> Result<StepOutcome> {
    if !repo.clippy {
        return Ok(StepOutcome::Skipped("no clippy: rustup component add clippy".to_owned()));
    }
    let told =
        build.args(["--no-run", "--quiet", "--message-format", "json"]).ignore_status().output()?;
    let warnings = warnings(&String::from_utf8_lossy(&told.stdout));
    warnings.iter().for_each(|warning| println!("{warning}"));
    match (warnings.len(), told.status.success()) {
        (0, true) => Ok(passed("clippy, warnings denied")),
        (0, false) => bail!("the build failed: {}", String::from_utf8_lossy(&told.stderr).trim()),
        (some, _) => bail!("{some} warnings; each is above"),
    }
}

/// What the compiler and clippy say of the workspace's packages, each finding once: a file that
/// belongs to a library and to its tests is compiled twice.
fn warnings(messages: &str) -> Vec<String> {
    let rendered = |line: &str| -> Option<String> {
        let message: Value = serde_json::from_str(line).ok()?;
        let text = message["message"]["rendered"].as_str()?;
        // The last line of a compilation counts the others.
        (!message["message"]["spans"].as_array()?.is_empty()).then(|| text.to_owned())
    };
    let all: BTreeSet<String> = messages.lines().filter_map(rendered).collect();
    all.into_iter().collect()
}

/// Broken links in the documentation, most of which is of private items, for whoever works on them.
pub(super) fn rustdoc(repo: &Repo) -> Result<StepOutcome> {
    repo.cargo_all(&["doc", "--no-deps", "--document-private-items", "--quiet"])
        .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links")
        .run()?;
    Ok(passed("warnings denied"))
}

/// A build without clippy in the compiler's place, which leaves out debug checks of pointers and
/// optimisations of MIR, and clippy by itself over all that there is, the bench's packages too.
pub(super) fn plain_build(repo: &Repo) -> Result<StepOutcome> {
    let (shell, folder) = (&repo.shell, repo.target.join("plain"));
    let _own = shell.push_env("CARGO_TARGET_DIR", folder);
    cmd!(shell, "cargo clippy --workspace --all-targets -- -D warnings").run()?;
    cmd!(shell, "cargo build --workspace --all-targets").run()?;
    Ok(passed("clippy as cargo runs it, and all targets built without it"))
}

/// Without advisories: their database is on the network.
pub(super) fn licences(repo: &Repo) -> Result<StepOutcome> {
    let shell = &repo.shell;
    let version = cmd!(shell, "cargo deny --version").quiet().ignore_stderr().read();
    let Ok(version) = version else {
        return Ok(StepOutcome::Skipped("no cargo-deny: cargo xtask setup".to_owned()));
    };
    // It asks for the manifests of all packages, and a build has fetched those of its selection.
    cmd!(shell, "cargo fetch --quiet --locked").run()?;
    let checks = ["bans", "licenses", "sources"];
    let output = cmd!(
        shell,
        "cargo deny --offline --workspace --exclude {UNIFY} --all-features check --hide-inclusion-graph {checks...}"
    )
    .ignore_status()
    .output()?;
    if !output.status.success() {
        println!("{}", String::from_utf8_lossy(&output.stderr));
        bail!("cargo deny refuses");
    }
    Ok(passed(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_told_once_and_a_summary_is_none() {
        let warning = |text: &str, spans: &str| {
            format!(
                r#"{{"reason":"compiler-message","message":{{"rendered":"{text}","spans":[{spans}]}}}}"#
            )
        };
        let messages = [
            warning("warning: unused", r#"{"line_start":1}"#),
            r#"{"reason":"compiler-artifact","fresh":true}"#.to_owned(),
            warning("warning: unused", r#"{"line_start":1}"#),
            warning("warning: 1 warning emitted", ""),
        ];
        assert_eq!(warnings(&messages.join("\n")), ["warning: unused"]);
    }
}
