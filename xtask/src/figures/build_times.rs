//! A stopwatch of builds: the daemon from nothing, and after a change in one crate.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use xshell::cmd;

use crate::repo::Repo;

/// Crate roots that are changed, one after the other: below everything, and at the edge.
const CHANGED: [&str; 3] =
    ["actors/kernel/src/lib.rs", "actors/workspace/src/lib.rs", "actors/team/src/lib.rs"];

/// Builds what `source` holds, twice where a crate is changed, and prints a line for each build.
/// Compare revisions on one machine that has nothing else to do.
pub(super) fn print(repo: &Repo, source: &Path) -> Result<()> {
    let products = repo.shell.create_temp_dir()?;
    let build = || -> Result<f64> {
        let (shell, products) = (&repo.shell, products.path());
        let _there = shell.push_dir(source);
        let begun = Instant::now();
        cmd!(shell, "cargo build --quiet --locked --bin hivekeep --target-dir {products}")
            .env("CARGO_INCREMENTAL", "1")
            .quiet()
            .run()?;
        Ok(begun.elapsed().as_secs_f64())
    };
    println!("\nbuild of the daemon, without optimisations{:>26.1} s", build()?);
    for file in CHANGED {
        let path = source.join(file);
        let text = std::fs::read_to_string(&path)?;
        std::fs::write(&path, format!("{text}\n#[allow(dead_code)]\nfn changed() {{}}\n"))?;
        println!("  after a change of {file:<40}{:>8.1} s", build()?);
    }
    Ok(())
}
