//! Conflict report: the files, kinds and hunks that git could not merge.

use std::collections::BTreeMap;

use hivekeep_kernel::ToolError;

use super::repo::{Repo, shown, text};
use crate::merge::api::{ConflictCommit, ConflictFile, ConflictKind, Hunk};

/// Maximum number of files that are named.
const MAX_FILES: usize = 200;
/// Maximum number of files whose hunks are shown.
const MAX_SHOWN_FILES: usize = 20;
/// Maximum number of hunks per file.
const MAX_HUNKS: usize = 20;
/// Maximum size of one hunk in bytes.
const MAX_HUNK_BYTES: usize = 8 * 1024;
/// Maximum size of all hunks of a source in bytes.
const MAX_BYTES: usize = 128 * 1024;

/// Reason why a source is not merged.
#[derive(Debug)]
pub(super) enum Failure {
    /// Refused before or instead of an attempt.
    Refused(ToolError),
    /// Conflict found by git.
    Conflict(Conflict),
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        Self::Refused(error)
    }
}

/// Conflict of a source.
#[derive(Debug)]
pub(super) struct Conflict {
    /// Commit that was being replayed.
    pub(super) commit: Option<ConflictCommit>,
    /// First files in conflict.
    pub(super) files: Vec<ConflictFile>,
    /// Total number of files in conflict.
    pub(super) files_total: u64,
}

/// Reads the conflict in a work tree, if there is one.
///
/// # Errors
/// Errors of git.
pub(super) async fn read(
    scratch: &Repo<'_>,
    commit: Option<&str>,
) -> Result<Option<Conflict>, ToolError> {
    let unmerged = scratch.run(&["ls-files", "-z", "--unmerged"]).await?;
    let kinds = kinds(&unmerged.stdout);
    if kinds.is_empty() {
        return Ok(None);
    }
    let files_total = kinds.len() as u64;
    let (mut files, mut left) = (Vec::new(), MAX_BYTES);
    for (index, (path, kind)) in kinds.into_iter().take(MAX_FILES).enumerate() {
        let mut file = ConflictFile {
            path: shown(&path),
            kind,
            binary: false,
            hunks: Vec::new(),
            truncated: true,
        };
        if index < MAX_SHOWN_FILES && left > 0 {
            let args = [
                "--literal-pathspecs",
                "diff",
                "--no-ext-diff",
                "--no-textconv",
                "--no-color",
                "--",
                &path,
            ];
            let output = scratch.run(&args).await?;
            fill(&mut file, &text(&output.stdout), &mut left);
            file.truncated |= output.truncated;
        }
        files.push(file);
    }
    let commit = match commit {
        Some(sha) => Some(name(scratch, sha).await?),
        None => None,
    };
    Ok(Some(Conflict { commit, files, files_total }))
}

async fn name(scratch: &Repo<'_>, sha: &str) -> Result<ConflictCommit, ToolError> {
    let subject = scratch.run(&["log", "-1", "--format=%s", sha]).await?;
    let subject = text(&subject.stdout).trim_end().chars().take(200).collect();
    Ok(ConflictCommit { sha: sha.to_owned(), subject })
}

/// Parses `git ls-files -z --unmerged`. Stages: 1 the base, 2 the target, 3 the source.
fn kinds(bytes: &[u8]) -> BTreeMap<String, ConflictKind> {
    let mut stages: BTreeMap<String, u8> = BTreeMap::new();
    for entry in bytes.split(|byte| *byte == 0) {
        let mut halves = entry.splitn(2, |byte| *byte == b'\t');
        let (Some(facts), Some(path)) = (halves.next(), halves.next()) else { continue };
        let stage = match facts.last() {
            Some(b'1') => 1,
            Some(b'2') => 2,
            _ => 4,
        };
        *stages.entry(text(path)).or_default() |= stage;
    }
    let kind = |stages| match stages {
        7 => ConflictKind::BothModified,
        6 => ConflictKind::BothAdded,
        3 => ConflictKind::DeletedBySource,
        5 => ConflictKind::DeletedByTarget,
        2 => ConflictKind::AddedByTarget,
        4 => ConflictKind::AddedBySource,
        _ => ConflictKind::BothDeleted,
    };
    stages.into_iter().map(|(path, stages)| (path, kind(stages))).collect()
}

/// Adds the hunks of a diff of one file.
fn fill(file: &mut ConflictFile, diff: &str, left: &mut usize) {
    file.truncated = false;
    let mut hunk: Option<Hunk> = None;
    for line in diff.split_inclusive('\n') {
        if line.starts_with("@@") {
            file.hunks.extend(hunk.take());
            if file.hunks.len() == MAX_HUNKS {
                file.truncated = true;
                return;
            }
            let lines = line.rfind("@@").map_or(line, |end| &line[..end + 2]);
            hunk = Some(Hunk { lines: shown(lines), text: String::new() });
        } else if let Some(hunk) = &mut hunk {
            let room = (MAX_HUNK_BYTES - hunk.text.len()).min(*left);
            let end = line.floor_char_boundary(room.min(line.len()));
            hunk.text.push_str(&line[..end]);
            *left -= end;
            file.truncated |= end < line.len();
        } else if line.starts_with("Binary files ") {
            file.binary = true;
        }
    }
    file.hunks.extend(hunk);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> ConflictFile {
        let kind = ConflictKind::BothModified;
        ConflictFile { path: "f".into(), kind, binary: false, hunks: vec![], truncated: true }
    }

    #[test]
    fn stages_say_what_stands_against_what() {
        let output =
            b"100644 aa 1\ta b\x00100644 bb 2\ta b\x00100644 cc 3\ta b\x00100644 bb 2\tnew\n\
            line\x00100644 cc 3\tnew\nline\x00100644 aa 1\tgone\x00100644 cc 3\tgone\x00junk\x00";
        let kinds = kinds(output);
        assert_eq!(kinds["a b"], ConflictKind::BothModified);
        assert_eq!(kinds["new\nline"], ConflictKind::BothAdded);
        assert_eq!(kinds["gone"], ConflictKind::DeletedByTarget);
        assert_eq!(kinds.len(), 3);
    }

    #[test]
    fn hunks_are_told_apart_and_bounded() {
        let (mut found, mut left) = (file(), MAX_BYTES);
        let diff = "diff --cc f\nindex a,b..c\n--- a/f\n+++ b/f\n@@@ -1,1 -1,1 +1,5 @@@ fn x\n++<<\n \
            +a\n@@@ -9,1 -9,1 +9,5 @@@\n+ b\n";
        fill(&mut found, diff, &mut left);
        let hunk = |lines: &str, text: &str| Hunk { lines: lines.into(), text: text.into() };
        let wanted = [
            hunk("@@@ -1,1 -1,1 +1,5 @@@", "++<<\n +a\n"),
            hunk("@@@ -9,1 -9,1 +9,5 @@@", "+ b\n"),
        ];
        assert_eq!((found.hunks.as_slice(), found.truncated), (&wanted[..], false));

        let (mut found, mut left) = (file(), MAX_BYTES);
        let long = format!("@@@ -1 -1 +1 @@@\n{}", "ä\n".repeat(MAX_HUNK_BYTES));
        fill(&mut found, &long.repeat(40), &mut left);
        assert!(found.truncated && found.hunks.len() == MAX_HUNKS);
        let bytes: usize = found.hunks.iter().map(|hunk| hunk.text.len()).sum();
        assert!(bytes <= MAX_BYTES && found.hunks.iter().all(|h| h.text.len() <= MAX_HUNK_BYTES));

        let (mut found, mut left) = (file(), MAX_BYTES);
        fill(&mut found, "diff --cc f\nBinary files differ\n", &mut left);
        assert!(found.binary && !found.truncated && found.hunks.is_empty());
    }
}
