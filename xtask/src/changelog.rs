//! `CHANGELOG.md` by fragments: a change that users see leaves one in `changelog.d/`, and a release
//! folds them in. [`surface`] sees a change without a fragment.

mod surface;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use xshell::cmd;

use crate::docs::names;
use crate::repo::Repo;
use crate::steps::{StepOutcome, passed};

const FOLDER: &str = "changelog.d";
const PAGE: &str = "CHANGELOG.md";
/// Heading of what no release has.
const UNRELEASED: &str = "## Unreleased\n";

#[derive(Args)]
pub(crate) struct Changelog {
    #[command(subcommand)]
    command: ChangelogCommand,
}

#[derive(Subcommand)]
enum ChangelogCommand {
    /// Write a fragment, or replace the one of that name, and record the surface as it is now
    Add {
        kind: Kind,
        /// Name of the fragment's file: lower-case letters, digits and hyphens
        slug: String,
        /// One or two sentences for users
        text: String,
    },
    /// Move the fragments into CHANGELOG.md, below a heading with version and date
    Release { version: String },
    /// Fail when the surface changed without a fragment, or a fragment cannot be read
    Check,
}

/// Kinds of changes, in the order of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Added,
    Changed,
    Fixed,
    Removed,
    Security,
}

impl Kind {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// A file of `changelog.d/`: `kind: KIND`, an empty line, and the text.
struct Fragment {
    file: String,
    kind: Kind,
    text: String,
}

impl Changelog {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        let root = repo.root.as_path();
        match &self.command {
            ChangelogCommand::Add { kind, slug, text } => add(root, *kind, slug, text),
            ChangelogCommand::Release { version } => {
                let date = cmd!(repo.shell, "date --utc +%F").quiet().read()?;
                release(root, version, &date)
            }
            ChangelogCommand::Check => accounted(root),
        }
    }
}

/// The step: it reads files only.
pub(crate) fn check(repo: &Repo) -> Result<StepOutcome> {
    accounted(&repo.root)?;
    Ok(passed("no change of what users see without a fragment"))
}

/// Fails when the surface is not the one that the fragments account for.
fn accounted(root: &Path) -> Result<()> {
    fragments(root)?;
    let changed = surface::changed(root)?;
    ensure!(
        changed.is_empty(),
        "what users see changed, and no fragment says so: {}; run \
         `cargo xtask changelog add KIND SLUG \"TEXT\"`, also to replace the fragment of a change \
         that went on",
        changed.join(", ")
    );
    Ok(())
}

fn add(root: &Path, kind: Kind, slug: &str, text: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ensure!(
        !slug.is_empty() && slug.chars().all(allowed),
        "`{slug}` cannot be a fragment's name: use lower-case letters, digits and hyphens"
    );
    let text = text.trim();
    ensure!(!text.is_empty(), "the text is empty: write one or two sentences for users");
    let path = root.join(FOLDER).join(format!("{slug}.md"));
    fs::create_dir_all(root.join(FOLDER))?;
    fs::write(&path, format!("kind: {}\n\n{text}\n", kind.name()))?;
    surface::record(root)?;
    println!("written: {FOLDER}/{slug}.md and the surface");
    Ok(())
}

fn release(root: &Path, version: &str, date: &str) -> Result<()> {
    accounted(root)?;
    let fragments = fragments(root)?;
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    fs::write(root.join(PAGE), released(&page, version, date, &fragments)?)?;
    for fragment in &fragments {
        fs::remove_file(root.join(FOLDER).join(&fragment.file))?;
    }
    println!("{PAGE} has {version} with {} fragments", fragments.len());
    Ok(())
}

/// The fragments, in the order of their names.
fn fragments(root: &Path) -> Result<Vec<Fragment>> {
    let files = names(&root.join(FOLDER))?;
    let fragments = files.into_iter().filter(|file| file.ends_with(".md"));
    fragments
        .map(|file| {
            let text = fs::read_to_string(root.join(FOLDER).join(&file))?;
            parse(file, &text)
        })
        .collect()
}

fn parse(file: String, text: &str) -> Result<Fragment> {
    let parts = text.split_once("\n\n").and_then(|(head, text)| {
        let kind = Kind::from_str(head.strip_prefix("kind: ")?, false).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| (kind, text.to_owned()))
    });
    let Some((kind, text)) = parts else {
        let kinds: Vec<_> = Kind::value_variants().iter().map(|kind| kind.name()).collect();
        bail!(
            "{FOLDER}/{file} is to be `kind: KIND`, an empty line and a text; KIND is one of: {}",
            kinds.join(", ")
        );
    };
    Ok(Fragment { file, kind, text })
}

/// The page with what is unreleased, and the fragments, below the heading of a release.
fn released(page: &str, version: &str, date: &str, fragments: &[Fragment]) -> Result<String> {
    let taken = page.lines().any(|line| line.starts_with(&format!("## {version} ")));
    ensure!(!taken, "{PAGE} has {version} already: give the next version");
    let (head, rest) =
        page.split_once(UNRELEASED).with_context(|| format!("{PAGE} has no `## Unreleased`"))?;
    let (body, older) = rest.split_at(rest.find("\n## ").map_or(rest.len(), |at| at + 1));
    ensure!(
        !fragments.is_empty() || !body.trim().is_empty(),
        "nothing is unreleased: a release has a fragment at least"
    );
    let mut parts = body.split("### ");
    let mut written = format!("{head}{UNRELEASED}\n## {version} ({date})\n");
    let preface = parts.next().unwrap_or_default().trim();
    if !preface.is_empty() {
        written.push_str(&format!("\n{preface}\n"));
    }
    let mut sections: Vec<(&str, &str)> =
        parts.map(|part| part.split_once('\n').unwrap_or((part, ""))).collect();
    for kind in Kind::value_variants() {
        let title = format!("{kind:?}");
        let mut entries = String::new();
        if let Some(at) = sections.iter().position(|(name, _)| *name == title) {
            entries = format!("{}\n", sections.remove(at).1.trim());
        }
        for fragment in fragments.iter().filter(|fragment| fragment.kind == *kind) {
            entries.push_str(&format!("- {}\n", fragment.text.replace('\n', "\n  ")));
        }
        if !entries.is_empty() {
            written.push_str(&format!("\n### {title}\n\n{entries}"));
        }
    }
    if let Some((name, _)) = sections.first() {
        bail!("{PAGE} has `### {name}` below `## Unreleased`: make it one of the kinds, once");
    }
    let gap = if older.is_empty() { "" } else { "\n" };
    Ok(format!("{written}{gap}{older}"))
}

#[cfg(test)]
mod tests;
