//! `cargo xtask figures`: lines, files and circles of imports of each crate, and times of builds, of the
//! checkout or of any revision of it.

mod build_times;

use std::path::Path;

use anyhow::Result;
use clap::Args;
use hivekeep_figures::{Crate, Source, ToolLines, measure, sources, tools};
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
    /// Count the lines of each tool instead: its part of the file that declares it, and its handler
    #[arg(long)]
    tools: bool,
    /// Build the daemon from nothing and after changes, too; of the checkout, what is committed
    #[arg(long)]
    build: bool,
}

impl Figures {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        if self.tools {
            println!("{}", tool_table(tools(&repo.root)?));
            return Ok(());
        }
        let folder = repo.shell.create_temp_dir()?;
        let root = match &self.rev {
            None => &repo.root,
            Some(rev) => {
                unpack(repo, rev, folder.path())?;
                folder.path()
            }
        };
        let crates = measure(root)?;
        println!("{}\n{}", table(&crates), documents(root)?);
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

/// Paths of documents that a command writes, or that are a test's.
const NOT_BY_HAND: [&str; 6] = [
    "CHANGELOG.md",
    "changelog.d/",
    "docs/errors.md",
    "docs/test-times.md",
    "docs/tools/",
    "tests/",
];

/// Lines and words of the documents that are written by hand.
fn documents(root: &Path) -> Result<String> {
    let by_hand = |page: &Source| !NOT_BY_HAND.iter().any(|path| page.path.starts_with(path));
    let pages: Vec<_> = sources(root, &[".md"])?.into_iter().filter(by_hand).collect();
    let lines: usize = pages.iter().map(|page| page.text.lines().count()).sum();
    let words: usize = pages.iter().map(|page| page.text.split_whitespace().count()).sum();
    Ok(format!("documents by hand: {} pages, {lines} lines, {words} words", pages.len()))
}

fn unpack(repo: &Repo, rev: &str, into: &Path) -> Result<()> {
    let (shell, archive) = (&repo.shell, into.join("archive.tar"));
    cmd!(shell, "git archive --output {archive} {rev}").quiet().run()?;
    cmd!(shell, "tar -x -f {archive} -C {into}").quiet().run()?;
    Ok(())
}

/// A line for each family's crate, and the medians.
fn tool_table(tools: Vec<ToolLines>) -> String {
    let all = |tool: &ToolLines| tool.declaration + tool.handler;
    let mut rows = vec![format!("{:<28}{:>7}{:>9}{:>8}", "crate", "tools", "median", "most")];
    let mut row = |name: &str, tools: &[ToolLines]| {
        let mut lines: Vec<_> = tools.iter().map(all).collect();
        lines.sort_unstable();
        let (median, most) = (lines[lines.len() / 2], lines[lines.len() - 1]);
        rows.push(format!("{name:<28}{:>7}{median:>9}{most:>8}", lines.len()));
    };
    for family in tools.chunk_by(|one, next| one.folder == next.folder) {
        row(&family[0].folder, family);
    }
    if !tools.is_empty() {
        row("all", &tools);
    }
    rows.join("\n")
}

/// A line for each crate, and one for all.
fn table(crates: &[Crate]) -> String {
    let row = |name: &str, lines: usize, tests: usize, mut code: Vec<usize>, circle: usize| {
        code.sort_unstable();
        let (files, median) = (code.len(), code.get(code.len() / 2).copied().unwrap_or_default());
        let shipped = lines - tests;
        format!("{name:<28}{shipped:>9}{tests:>8}{lines:>8}{files:>7}{median:>8}{circle:>16}")
    };
    let mut rows = vec![format!(
        "{:<28}{:>9}{:>8}{:>8}{:>7}{:>8}{:>16}",
        "crate", "no tests", "tests", "total", "files", "median", "largest circle"
    )];
    for it in crates {
        let code = it.code_lines.clone();
        rows.push(row(&it.folder, it.lines, it.test_lines, code, it.largest_circle()));
    }
    rows.push(row(
        "all",
        crates.iter().map(|each| each.lines).sum(),
        crates.iter().map(|each| each.test_lines).sum(),
        crates.iter().flat_map(|each| each.code_lines.clone()).collect(),
        crates.iter().map(|each| each.largest_circle()).max().unwrap_or_default(),
    ));
    rows.join("\n")
}
