//! Files that are written from the declarations: `docs/tools/`, `docs/errors.md`, `config.toml`,
//! `tests/contract/cli.txt`, the table of tools in `README.md`, and the counts in all pages. The
//! manifest of `tests/unify` is written beside them.

mod cli;
mod counts;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;
use xshell::cmd;

use self::counts::Counts;
use crate::repo::Repo;
use crate::unify;

/// The page that lists the tools of all families.
const INDEX: &str = "docs/tools/README.md";

/// Texts of files, by their paths below the root.
type Files = BTreeMap<String, String>;

#[derive(Args)]
pub(crate) struct Docs {
    /// Write nothing; fail when something is stale
    #[arg(long)]
    check: bool,
}

impl Docs {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        // First: it says which features the daemon is built with.
        if self.check {
            unify::check(repo)?
        } else {
            unify::write(repo)?
        }
        repo.build_daemon()?;
        if self.check { check(repo) } else { write(repo) }
    }
}

/// Fails when a generated file is not what the declarations say now.
pub(crate) fn check(repo: &Repo) -> Result<()> {
    let stale = stale(&repo.root, &generated(repo)?)?;
    ensure!(stale.is_empty(), "{}; run `cargo xtask docs`", stale.join("; "));
    Ok(())
}

fn write(repo: &Repo) -> Result<()> {
    let files = generated(repo)?;
    for (path, text) in &files {
        fs::write(repo.root.join(path), text).with_context(|| format!("write {path}"))?;
    }
    for path in unknown_pages(&repo.root, &files)? {
        fs::remove_file(repo.root.join(path))?;
    }
    Ok(())
}

/// Every generated file, as the declarations of the built daemon say.
fn generated(repo: &Repo) -> Result<Files> {
    let (shell, hivekeep) = (&repo.shell, repo.hivekeep());
    let folder = shell.create_temp_dir()?;
    let (tools, errors) = (folder.path().join("tools"), folder.path().join("errors.md"));
    cmd!(shell, "{hivekeep} tools --write {tools}").quiet().run()?;
    cmd!(shell, "{hivekeep} errors --write {errors}").quiet().run()?;
    let shipped = cmd!(shell, "{hivekeep} config --default").quiet().output()?.stdout;
    let mut files = Files::from([
        ("docs/errors.md".to_owned(), fs::read_to_string(errors)?),
        ("config.toml".to_owned(), String::from_utf8(shipped)?),
        ("tests/contract/cli.txt".to_owned(), cli::text(&hivekeep)?),
    ]);
    for name in names(&tools)? {
        files.insert(format!("docs/tools/{name}"), fs::read_to_string(tools.join(name))?);
    }
    let index = files.get(INDEX).context("the daemon wrote no index of tools")?;
    let frozen = fs::read_to_string(repo.root.join("tests/contract/tools.json"))?;
    let (counts, table) = (counts::of(index, &frozen)?, table(index)?);
    for page in hivekeep_figures::sources(&repo.root, &[".md"])? {
        if files.contains_key(&page.path) {
            continue;
        }
        if let Some(text) = filled(&page.path, &page.text, &counts, &table)? {
            files.insert(page.path, text);
        }
    }
    Ok(files)
}

/// A page that people write, with its generated parts; `None` when it has none.
fn filled(path: &str, text: &str, counts: &Counts, table: &str) -> Result<Option<String>> {
    let listed = path == "README.md";
    if !listed && !counts::has_any(text) {
        return Ok(None);
    }
    let text = if listed { with_table(text, table)? } else { text.to_owned() };
    counts::with(&text, counts).with_context(|| path.to_owned()).map(Some)
}

/// The table of tools, a row for each family, from the index of their pages.
fn table(index: &str) -> Result<String> {
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for line in index.lines() {
        if let Some(family) = line.strip_prefix("## [") {
            rows.push((format!("[{}", family.replacen("](", "](docs/tools/", 1)), Vec::new()));
        } else if let Some((tool, _)) = line.strip_prefix("| [").and_then(|row| row.split_once(']'))
        {
            rows.last_mut().context("a tool has a family")?.1.push(tool);
        }
    }
    let row = |(family, tools): &(_, Vec<_>)| format!("| {family} | {} |\n", tools.join(" "));
    let rows: String = rows.iter().map(row).collect();
    Ok(format!("| family | tools |\n|---|---|\n{rows}"))
}

/// The page with another table between its markers.
fn with_table(page: &str, table: &str) -> Result<String> {
    const MARKERS: (&str, &str) =
        ("<!-- tools: written by `cargo xtask docs` -->\n", "<!-- end of tools -->");
    let (before, rest) = page.split_once(MARKERS.0).context("README.md has no place for tools")?;
    let (_, after) = rest.split_once(MARKERS.1).context("README.md's table of tools has no end")?;
    // Where a marker is a paragraph of its own, Markdown sees a table.
    Ok(format!("{before}{}\n{table}\n{}{after}", MARKERS.0, MARKERS.1))
}

/// What of the generated files differs below `root`, and what there should not be.
fn stale(root: &Path, files: &Files) -> Result<Vec<String>> {
    let mut stale = Vec::new();
    for (path, text) in files {
        if fs::read_to_string(root.join(path)).ok().as_ref() != Some(text) {
            stale.push(format!("{path} is stale"));
        }
    }
    let unknown = unknown_pages(root, files)?;
    stale.extend(unknown.iter().map(|path| format!("{path} belongs to nothing")));
    Ok(stale)
}

/// Pages in the folder of tools that no declaration has.
fn unknown_pages(root: &Path, files: &Files) -> Result<Vec<String>> {
    let kept = names(&root.join("docs/tools"))?.into_iter();
    Ok(kept
        .map(|name| format!("docs/tools/{name}"))
        .filter(|path| !files.contains_key(path))
        .collect())
}

/// Names of the files in a folder, in order; none when there is no such folder.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("list {}", folder.display())),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests;
