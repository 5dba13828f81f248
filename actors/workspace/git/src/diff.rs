//! Diff operation, behind the tool `git_diff`.

use std::time::Duration;

use hivekeep_kernel::ToolError;
use hivekeep_link::capped_text;

use super::Git;
use crate::api::GitDiffed;
use crate::codes;

/// Maximum size of a diff that is returned.
const MAX_BYTES: u64 = 2 * 1024 * 1024;
/// Extra bytes read, so that a credential that the cut would split is hidden whole.
const MARGIN_BYTES: u64 = 20 * 1024;
const LIMIT: Duration = Duration::from_secs(120);

/// Parameters of a diff.
pub struct DiffWish {
    pub staged: bool,
    pub stat: bool,
    pub file_path: Option<String>,
    pub max_bytes: u64,
}

impl DiffWish {
    /// # Errors
    ///
    /// `invalid_input`.
    pub fn check(&self) -> Result<(), ToolError> {
        if !(1..=MAX_BYTES).contains(&self.max_bytes) {
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
pub async fn diff(git: &Git, wish: DiffWish) -> Result<GitDiffed, ToolError> {
    git.check_work_tree().await?;
    let mut args = vec!["diff", "--no-color", "--no-ext-diff"];
    args.extend(wish.staged.then_some("--cached"));
    args.push(if wish.stat { "--stat=200" } else { "--patch" });
    args.push("--");
    args.extend(wish.file_path.as_deref());
    let done = git.run_for(&args, LIMIT, wish.max_bytes + MARGIN_BYTES).await?;
    if !done.ok() {
        return Err(git
            .failed(codes::GIT_DIFF_FAILED, "git could not tell what differs", &done)
            .next("git's output says why"));
    }
    Ok(shown(git, &done.stdout, done.stdout_bytes, &wish))
}

fn shown(git: &Git, bytes: &[u8], total_bytes: u64, wish: &DiffWish) -> GitDiffed {
    let (text, redacted) = git.hider.text(&String::from_utf8_lossy(bytes));
    let most = usize::try_from(wish.max_bytes).unwrap_or(usize::MAX);
    let kept = &text.as_bytes()[..text.len().min(most)];
    let truncated = kept.len() < text.len() || total_bytes > bytes.len() as u64;
    let kept_bytes = kept.len() as u64;
    let of = if truncated { total_bytes.max(kept_bytes + 1) } else { kept_bytes };
    let diff = capped_text(kept, of).text;
    GitDiffed { diff, truncated, stat: wish.stat, total_bytes, redacted }
}
