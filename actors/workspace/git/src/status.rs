//! Status and differences of a repository: operations behind the tools `git_status`, with the parser of
//! `git status --porcelain=v2`, and `git_diff`.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_link::capped_text;

use crate::api::{GitDiffed, GitStatusResult, RenamedPath};
use crate::codes;
use crate::repo::Git;

/// Maximum size of the status output that is read.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
/// Maximum number of paths that are listed.
const MAX_PATHS: usize = 5_000;
const LIMIT: Duration = Duration::from_secs(120);

/// Reads the status of a work tree, for the tool `git_status`.
///
/// # Errors
/// `not_a_repository` and similar; `git_status_failed`.
pub async fn status(git: &Git) -> Result<GitStatusResult, ToolError> {
    git.check_work_tree().await?;
    let args =
        ["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--renames"];
    let done = git.run_for(&args, LIMIT, MAX_BYTES).await?;
    if !done.ok() {
        return Err(git.failed(codes::GIT_STATUS_FAILED, "git could not tell the status", &done));
    }
    read(&done.stdout, done.truncated).map_err(|Malformed(what)| {
        ToolError::new(
            Layer::Guest,
            codes::GIT_OUTPUT_UNREADABLE,
            format!("git status printed {what}"),
        )
        .next("the workspace needs git 2.11 or later: look at `git --version`")
    })
}

/// Error for output that git does not print.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(String);

fn malformed(record: &[u8]) -> Malformed {
    Malformed(String::from_utf8_lossy(record).chars().take(80).collect())
}

/// Parses porcelain v2 with `-z`. The last record of a truncated output is left out.
pub(super) fn read(bytes: &[u8], cut: bool) -> Result<GitStatusResult, Malformed> {
    let whole = match bytes.iter().rposition(|byte| *byte == 0) {
        Some(end) => &bytes[..end],
        None if bytes.is_empty() || cut => {
            return Ok(GitStatusResult { truncated: cut, ..GitStatusResult::default() });
        }
        None => return Err(malformed(bytes)),
    };
    let mut records = whole.split(|byte| *byte == 0);
    let mut status = GitStatusResult { truncated: cut, ..GitStatusResult::default() };
    let mut paths = 0;
    while let Some(record) = records.next() {
        let Some((kind, rest)) =
            record.split_first().filter(|(_, rest)| rest.first() == Some(&b' '))
        else {
            return Err(malformed(record));
        };
        let rest = &rest[1..];
        if *kind == b'#' {
            header(&mut status, rest)?;
            continue;
        }
        let from = match kind {
            b'2' => match records.next() {
                Some(from) => Some(from),
                None if cut => break,
                None => return Err(malformed(record)),
            },
            _ => None,
        };
        paths += 1;
        status.dirty |= *kind != b'!';
        if paths > MAX_PATHS {
            status.truncated = true;
            break;
        }
        entry(&mut status, *kind, rest, from).ok_or_else(|| malformed(record))?;
    }
    Ok(status)
}

fn header(status: &mut GitStatusResult, line: &[u8]) -> Result<(), Malformed> {
    let text = String::from_utf8_lossy(line);
    let (key, value) = text.split_once(' ').ok_or_else(|| malformed(line))?;
    match key {
        "branch.oid" if value != "(initial)" => status.commit_sha = Some(value.to_owned()),
        "branch.head" if value == "(detached)" => status.detached = true,
        "branch.head" => status.branch = Some(value.to_owned()),
        "branch.upstream" => status.upstream = Some(value.to_owned()),
        "branch.ab" => {
            let counts = value.split_once(' ').and_then(|(ahead, behind)| {
                Some((
                    ahead.strip_prefix('+')?.parse().ok()?,
                    behind.strip_prefix('-')?.parse().ok()?,
                ))
            });
            let (ahead, behind) = counts.ok_or_else(|| malformed(line))?;
            (status.ahead, status.behind) = (Some(ahead), Some(behind));
        }
        // Later versions may print more headers.
        _ => {}
    }
    Ok(())
}

/// Adds one entry; `None` when the record has too few fields.
fn entry(status: &mut GitStatusResult, kind: u8, rest: &[u8], from: Option<&[u8]>) -> Option<()> {
    let fields_before_path = match kind {
        b'1' => 7,
        b'2' => 8,
        b'u' => 9,
        b'?' => 0,
        b'!' => return Some(()),
        _ => return None,
    };
    let mut fields = rest.splitn(fields_before_path + 1, |byte| *byte == b' ');
    let changes = if fields_before_path > 0 { fields.next()? } else { b"" };
    let path = fields.nth(usize::from(fields_before_path > 0) * (fields_before_path.max(1) - 1))?;
    let path = (!path.is_empty()).then(|| spelled(path))?;
    match kind {
        b'?' => status.untracked.push(path),
        b'u' => status.conflicted.push(path),
        _ => {
            let [index, work_tree] = *<&[u8; 2]>::try_from(changes).ok()?;
            if let Some(from) = from {
                let to = path.clone();
                let staged = matches!(index, b'R' | b'C');
                status.renamed.push(RenamedPath { from: spelled(from), to, staged });
            }
            if index != b'.' {
                status.staged.push(path.clone());
            }
            if work_tree != b'.' {
                status.modified.push(path);
            }
        }
    }
    Some(())
}

/// Formats a path. A path that is not UTF-8, or that begins with a quote, is quoted as git does:
/// between `"`, with `\` and three octal digits for a byte.
fn spelled(path: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(path)
        && !text.starts_with('"')
    {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for byte in path {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => quoted.push(char::from(*byte)),
            _ => quoted.push_str(&format!("\\{byte:03o}")),
        }
    }
    quoted.push('"');
    quoted
}

/// Maximum size of a diff that is returned.
const MAX_DIFF_BYTES: u64 = 2 * 1024 * 1024;
/// Extra bytes read, so that a credential that the cut would split is hidden whole.
const MARGIN_BYTES: u64 = 20 * 1024;

/// Parameters of a diff.
pub struct DiffRequest {
    pub staged: bool,
    pub stat: bool,
    pub file_path: Option<String>,
    pub max_bytes: u64,
}

impl DiffRequest {
    /// # Errors
    ///
    /// `invalid_input`.
    pub fn check(&self) -> Result<(), ToolError> {
        if !(1..=MAX_DIFF_BYTES).contains(&self.max_bytes) {
            return Err(ToolError::invalid("max_bytes must be 1 to 2097152")
                .next("write the diff to a file by exec, and use file_transfer for more"));
        }
        match self.file_path.as_deref() {
            Some(path) if path.is_empty() || path.contains('\0') => {
                Err(ToolError::invalid("file_path is empty or contains a NUL byte"))
            }
            _ => Ok(()),
        }
    }
}

/// Reads the diff of the work tree or the index.
///
/// # Errors
/// `not_a_repository` and similar; `git_diff_failed`.
pub async fn diff(git: &Git, request: DiffRequest) -> Result<GitDiffed, ToolError> {
    git.check_work_tree().await?;
    let mut args = vec!["diff", "--no-color", "--no-ext-diff"];
    args.extend(request.staged.then_some("--cached"));
    args.push(if request.stat { "--stat=200" } else { "--patch" });
    args.push("--");
    args.extend(request.file_path.as_deref());
    let done = git.run_for(&args, LIMIT, request.max_bytes + MARGIN_BYTES).await?;
    if !done.ok() {
        return Err(git
            .failed(codes::GIT_DIFF_FAILED, "git could not tell what differs", &done)
            .next("git's output says why"));
    }
    Ok(shown(git, &done.stdout, done.stdout_bytes, &request))
}

fn shown(git: &Git, bytes: &[u8], total_bytes: u64, request: &DiffRequest) -> GitDiffed {
    let (text, redacted) = git.hider.text(&String::from_utf8_lossy(bytes));
    let most = usize::try_from(request.max_bytes).unwrap_or(usize::MAX);
    let kept = &text.as_bytes()[..text.len().min(most)];
    let truncated = kept.len() < text.len() || total_bytes > bytes.len() as u64;
    let kept_bytes = kept.len() as u64;
    let of = if truncated { total_bytes.max(kept_bytes + 1) } else { kept_bytes };
    let diff = capped_text(kept, of).text;
    GitDiffed { diff, truncated, stat: request.stat, total_bytes, redacted }
}

#[cfg(test)]
mod tests;
