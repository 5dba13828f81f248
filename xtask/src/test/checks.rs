//! Checks that run no test: form, lints, licences and who may use what.

use anyhow::{Result, bail};
use xshell::cmd;

use crate::repo::{FEATURES, Repo};
use crate::steps::{StepOutcome, passed};

pub(super) fn format(repo: &Repo) -> Result<StepOutcome> {
    let shell = &repo.shell;
    cmd!(shell, "cargo fmt --all --check").run()?;
    Ok(passed(""))
}

/// Has a target folder of its own: cargo holds a lock on one for as long as it builds, for which
/// the tests would wait. Fuzz targets are linted where they are built.
pub(super) fn lints(repo: &Repo) -> Result<StepOutcome> {
    let (shell, folder) = (&repo.shell, repo.target.join("lints"));
    let _own = shell.push_env("CARGO_TARGET_DIR", folder);
    cmd!(shell, "cargo clippy --workspace --all-targets --features {FEATURES} -- -D warnings")
        .run()?;
    // Broken links in the documentation are warnings of rustdoc only. Most of it is
    // of private items, for whoever works on them.
    cmd!(shell, "cargo doc --workspace --no-deps --document-private-items --quiet")
        .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links")
        .run()?;
    Ok(passed("clippy and rustdoc, warnings denied"))
}

/// Without advisories: their database is on the network.
pub(super) fn licences(repo: &Repo) -> Result<StepOutcome> {
    let shell = &repo.shell;
    let version = cmd!(shell, "cargo deny --version").quiet().ignore_stderr().read();
    let Ok(version) = version else {
        return Ok(StepOutcome::Skipped("no cargo-deny: cargo xtask setup".to_owned()));
    };
    let checks = ["bans", "licenses", "sources"];
    let output = cmd!(
        shell,
        "cargo deny --offline --workspace --all-features check --hide-inclusion-graph {checks...}"
    )
    .ignore_status()
    .output()?;
    if !output.status.success() {
        println!("{}", String::from_utf8_lossy(&output.stderr));
        bail!("cargo deny refuses");
    }
    Ok(passed(version))
}
