//! An upgrade test: a daemon of an older version, killed at work, and this one in its place.
//!
//! The older version is built from the repository's history, so that takes a clone that has it. The
//! state that `tests/upgrade` keeps for every run of the tests is recorded by the same scene.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use xshell::cmd;

use crate::repo::{Repo, TRIPLE};
use crate::steps::{StepOutcome, passed};
use crate::test::lane;
use crate::{guest, image};

/// Revisions that a night upgrades from: the last before families stood in one list and logs were one, and one
/// with a credential, a rule, an approval, scripts, metrics, a collection, a source and a parked machine.
const REVISIONS: [&str; 2] = ["59e9af1", "3638dd67"];
/// The test that plays the scene.
const TEST: &str = "vm::an_older_daemon_is_replaced_while_its_machines_run";

#[derive(Args)]
pub(crate) struct Upgrade {
    /// The older version
    #[arg(long, value_name = "REVISION", default_value = REVISIONS[1])]
    from: String,
    /// Write the state of the killed daemon, without its machines, to tests/upgrade
    #[arg(long)]
    record: bool,
}

/// Upgrades from each of a night's revisions.
pub(crate) fn check(repo: &Repo) -> Result<StepOutcome> {
    for revision in REVISIONS {
        Upgrade { from: revision.to_owned(), record: false }.run(repo)?;
    }
    Ok(passed(format!("from {}", REVISIONS.join(" and "))))
}

impl Upgrade {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        let guest = guest::build(repo)?;
        image::build(repo, "base")?;
        let old = self.build(repo)?;
        let mut test = repo
            .cargo(&["nextest", "run", "--test", "vm"], &["hivekeep"])
            .arg("-E")
            .arg(format!("binary(vm) & test(={TEST})"))
            .env(lane::NIGHTLY, "1")
            .env("TEST_HIVEKEEP_OLD", old)
            .env("TEST_HIVEKEEP_GUEST", guest)
            .env("TEST_HIVEKEEP_IMAGES", repo.images());
        if self.record {
            let name = format!("tests/upgrade/state-{}.tar.zst", self.from);
            test = test.env("TEST_HIVEKEEP_RECORD", repo.root.join(name));
        }
        Ok(test.run()?)
    }

    /// Builds both programs of the older version and returns their folder.
    fn build(&self, repo: &Repo) -> Result<PathBuf> {
        let (shell, source) = (&repo.shell, repo.source_of(&self.from)?);
        let old = source.with_file_name("upgrade");
        fs::create_dir_all(&old)?;
        let in_there = shell.push_dir(&source);
        let products = old.join("target");
        cmd!(
            shell,
            "cargo build --locked --features failpoints --bin hivekeep --target-dir {products}"
        )
        .run()?;
        cmd!(
            shell,
            "cargo build --locked --package hivekeep-guest --bin hivekeep-guest --profile guest --target {TRIPLE} --target-dir {products}"
        )
        .env("RUSTFLAGS", guest::FLAGS)
        .run()?;
        drop(in_there);
        for (from, name) in [
            (products.join("debug/hivekeep"), "hivekeep"),
            (products.join(TRIPLE).join("guest/hivekeep-guest"), "hivekeep-guest"),
        ] {
            fs::copy(&from, old.join(name)).with_context(|| format!("copy {}", from.display()))?;
        }
        Ok(old)
    }
}
