//! Pages that are written from the declarations: `docs/tools/`, `docs/errors.md`, `config.toml` and
//! the table of tools in `README.md`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;
use xshell::cmd;

use crate::repo::{FEATURES, Repo};

#[derive(Args)]
pub(crate) struct Docs {
    /// Write nothing; fail when something is stale
    #[arg(long)]
    check: bool,
}

impl Docs {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        let shell = &repo.shell;
        cmd!(shell, "cargo build --package hivekeep --features {FEATURES}").run()?;
        if self.check { check(repo) } else { write(repo, &repo.root) }
    }
}

/// Fails when a generated file is not what the declarations say now.
pub(crate) fn check(repo: &Repo) -> Result<()> {
    let fresh = repo.shell.create_temp_dir()?;
    write(repo, fresh.path())?;
    let mut stale = Vec::new();
    for folder in ["", "docs", "docs/tools"] {
        compare(&fresh.path().join(folder), &repo.root.join(folder), &mut stale)?;
    }
    for path in files(&repo.root.join("docs/tools"))? {
        if !fresh.path().join("docs/tools").join(&path).exists() {
            stale.push(format!("docs/tools/{path} belongs to nothing"));
        }
    }
    ensure!(stale.is_empty(), "{}; run `cargo xtask docs`", stale.join("; "));
    Ok(())
}

fn write(repo: &Repo, root: &Path) -> Result<()> {
    let (shell, hivekeep) = (&repo.shell, repo.hivekeep());
    let folder = root.join("docs/tools");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    cmd!(shell, "{hivekeep} tools --write {folder}").quiet().run()?;
    let errors = root.join("docs/errors.md");
    cmd!(shell, "{hivekeep} errors --write {errors}").quiet().run()?;
    let shipped = cmd!(shell, "{hivekeep} config --default").quiet().output()?.stdout;
    fs::write(root.join("config.toml"), shipped)?;
    let index = fs::read_to_string(folder.join("README.md"))?;
    let readme = fs::read_to_string(repo.root.join("README.md"))?;
    fs::write(root.join("README.md"), with_table(&readme, &table(&index)?)?)?;
    Ok(())
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

/// Adds what of `fresh`'s files differs in `kept`. Does not descend.
fn compare(fresh: &Path, kept: &Path, stale: &mut Vec<String>) -> Result<()> {
    for path in files(fresh)? {
        let new = fs::read(fresh.join(&path))?;
        if fs::read(kept.join(&path)).ok().as_ref() != Some(&new) {
            stale.push(format!("{} is stale", kept.join(&path).display()));
        }
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<String>> {
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
mod tests {
    use super::*;

    #[test]
    fn tools_are_listed_by_family_between_the_markers() {
        let index = "# Tools\n\n## [one & two](one-two.md)\n\n| tool | what it does |\n|---|---|\n\
                     | [`a`](one-two.md#a) | Do a [thing] |\n| [`b`](one-two.md#b) | Do b |\n";
        let table = table(index).unwrap();
        assert_eq!(
            table,
            "| family | tools |\n|---|---|\n| [one & two](docs/tools/one-two.md) | `a` `b` |\n"
        );
        let page = "before\n<!-- tools: written by `cargo xtask docs` -->\nold\n\
                    <!-- end of tools -->\nafter";
        let written = with_table(page, &table).unwrap();
        assert!(written.contains(&table) && !written.contains("old"), "{written}");
        assert!(written.starts_with("before\n") && written.ends_with("\nafter"), "{written}");
        assert_eq!(with_table(&written, &table).unwrap(), written);
        assert!(with_table("no markers", &table).is_err());
    }

    #[test]
    fn a_changed_and_a_missing_file_are_both_stale() {
        let (fresh, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, text) in [("same.md", "a"), ("changed.md", "new"), ("missing.md", "b")] {
            fs::write(fresh.path().join(name), text).unwrap();
        }
        fs::write(kept.path().join("same.md"), "a").unwrap();
        fs::write(kept.path().join("changed.md"), "old").unwrap();
        let mut stale = Vec::new();
        compare(fresh.path(), kept.path(), &mut stale).unwrap();
        assert_eq!(stale.len(), 2);
        assert!(
            stale[0].ends_with("changed.md is stale") && stale[1].ends_with("missing.md is stale")
        );
        assert_eq!(files(&kept.path().join("no-such-folder")).unwrap(), Vec::<String>::new());
    }
}
