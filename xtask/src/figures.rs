//! `cargo xtask figures`: lines and circles of imports of each crate, and times of builds, of the
//! checkout or of any revision of it.

mod build_times;

use std::path::Path;

use anyhow::Result;
use clap::Args;
use hivekeep_figures::{Crate, measure};
use xshell::cmd;

use crate::repo::Repo;

#[derive(Args)]
pub(crate) struct Figures {
    /// Measure this revision instead of the checkout
    #[arg(long)]
    rev: Option<String>,
    /// Name the files of each circle, and what each imports of the others
    #[arg(long)]
    circles: bool,
    /// Build the daemon from nothing and after changes, too; of the checkout, what is committed
    #[arg(long)]
    build: bool,
}

impl Figures {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        let folder = repo.shell.create_temp_dir()?;
        let crates = match &self.rev {
            None => measure(&repo.root)?,
            Some(rev) => {
                unpack(repo, rev, folder.path())?;
                measure(folder.path())?
            }
        };
        println!("{}", table(&crates));
        for found in crates.iter().filter(|_| self.circles) {
            for circle in &found.circles {
                println!("\n{}, {} files:", found.folder, circle.len());
                for (file, imported) in circle {
                    println!("  {file} ─▶ {}", imported.join(", "));
                }
            }
        }
        if self.build {
            if self.rev.is_none() {
                unpack(repo, "HEAD", folder.path())?;
            }
            build_times::print(repo, folder.path())?;
        }
        Ok(())
    }
}

fn unpack(repo: &Repo, rev: &str, into: &Path) -> Result<()> {
    let (shell, archive) = (&repo.shell, into.join("archive.tar"));
    cmd!(shell, "git archive --output {archive} {rev}").quiet().run()?;
    cmd!(shell, "tar -x -f {archive} -C {into}").quiet().run()?;
    Ok(())
}

/// A line for each crate, and their sum.
fn table(crates: &[Crate]) -> String {
    let row = |name: &str, lines: usize, tests: usize, circle: usize| {
        format!("{name:<28}{:>9}{tests:>8}{lines:>8}{circle:>16}", lines - tests)
    };
    let mut rows = vec![format!(
        "{:<28}{:>9}{:>8}{:>8}{:>16}",
        "crate", "no tests", "tests", "total", "largest circle"
    )];
    for each in crates {
        rows.push(row(&each.folder, each.lines, each.test_lines, each.largest_circle()));
    }
    rows.push(row(
        "all",
        crates.iter().map(|each| each.lines).sum(),
        crates.iter().map(|each| each.test_lines).sum(),
        crates.iter().map(|each| each.largest_circle()).max().unwrap_or_default(),
    ));
    rows.join("\n")
}
