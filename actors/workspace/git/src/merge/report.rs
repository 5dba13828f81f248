//! Result builder of a merge.

use hivekeep_kernel::{Layer, ToolError};

use super::{
    MergeRequest, MergeSide,
    collect::Collected,
    conflict::Failure,
    replay::Applied,
    repo::{Repo, failed, is_sha, shown, text},
};
use crate::codes;
use crate::merge::api::{
    BaseFoundBy, Interrupted, MergeConflict, MergeResult, SourceMerge, SourceStatus, Uncommitted,
};

/// Maximum number of files named of a source's uncommitted work.
const MAX_FILES: usize = 200;
/// Maximum number of submodules that are named.
const MAX_SUBMODULES: usize = 100;

/// Result so far.
pub(super) struct Report {
    result: MergeResult,
}

impl Report {
    pub(super) fn new(
        request: &MergeRequest,
        target: &MergeSide,
        head: String,
        interrupted_before: Vec<Interrupted>,
    ) -> Self {
        Self {
            result: MergeResult {
                success: false,
                strategy: request.strategy,
                target_workspace: target.id,
                branch: None,
                head_after: head.clone(),
                head_before: head,
                total_commits_applied: 0,
                merged_sources: Vec::new(),
                conflicts: Vec::new(),
                sources: Vec::new(),
                uncommitted_sources: Vec::new(),
                interrupted_before,
            },
        }
    }

    pub(super) fn head_before(&self) -> &str {
        &self.result.head_before
    }

    /// Begins the row of the next source.
    pub(super) fn begin(&mut self, source: &MergeSide, has: &Collected) {
        if !has.uncommitted.is_empty() {
            let files = has.uncommitted.iter().take(MAX_FILES);
            self.result.uncommitted_sources.push(Uncommitted {
                source_id: source.id,
                files: files.map(|path| shown(path)).collect(),
                files_total: has.uncommitted.len() as u64,
                committed: has.committed.is_some(),
            });
        }
        self.result.sources.push(SourceMerge {
            source_id: source.id,
            source_name: source.name.clone(),
            status: SourceStatus::Failed,
            commits_applied: 0,
            head: None,
            merge_base: None,
            merge_base_found_by: None,
            further_merge_bases: 0,
            already_there: 0,
            merges_flattened: 0,
            branch: None,
            branch_error: None,
            submodules: Vec::new(),
            committed: has.committed.clone(),
        });
    }

    fn source(&mut self, change: impl FnOnce(&mut SourceMerge)) {
        if let Some(source) = self.result.sources.last_mut() {
            change(source);
        }
    }

    /// Records the source's commit, and its bases with the target's history.
    pub(super) fn found(&mut self, tip: &str, bases: &[String]) {
        self.source(|source| {
            source.head = Some(tip.to_owned());
            source.merge_base = bases.first().cloned();
            source.merge_base_found_by = bases.first().map(|_| BaseFoundBy::GitMergeBase);
            source.further_merge_bases = bases.len().saturating_sub(1) as u64;
        });
    }

    pub(super) fn submodules(&mut self, submodules: Vec<String>) {
        self.source(|source| source.submodules = submodules);
    }

    pub(super) fn up_to_date(&mut self) {
        self.source(|source| source.status = SourceStatus::UpToDate);
    }

    /// Records that the source merged into the scratch tree.
    pub(super) fn applied(&mut self, applied: Applied) {
        self.source(|source| {
            // Replaying something a second time leaves nothing to apply.
            let nothing = applied.commits == 0;
            source.status = if nothing { SourceStatus::UpToDate } else { SourceStatus::Merged };
            source.already_there = applied.already_there;
            source.commits_applied = applied.commits;
            source.merges_flattened = applied.merges_flattened;
        });
    }

    pub(super) fn failed(&mut self, failure: Failure) {
        let Some(source) = self.result.sources.last() else { return };
        let source_id = source.source_id;
        self.result.conflicts.push(match failure {
            Failure::Refused(error) => MergeConflict {
                source_id,
                code: error.code.into_owned(),
                error: match error.details.get("output").and_then(|output| output.as_str()) {
                    Some(output) if !output.is_empty() => {
                        format!("{}: {}", error.message, output.trim_end())
                    }
                    _ => error.message,
                },
                next_step: error.next_step,
                commit: None,
                files: Vec::new(),
                files_total: 0,
            },
            Failure::Conflict(conflict) => MergeConflict {
                source_id,
                code: codes::CONFLICT.name.to_owned(),
                error: format!(
                    "{} of its files conflict with the target",
                    conflict.files_total
                ),
                next_step: Some(
                    "bring the target's commits into the source, resolve the conflict there, commit, and repeat"
                        .to_owned(),
                ),
                commit: conflict.commit,
                files: conflict.files,
                files_total: conflict.files_total,
            },
        });
    }

    /// True if the built commits may land on the target.
    pub(super) fn may_land(&self, keep_going: bool) -> bool {
        keep_going || self.result.conflicts.is_empty()
    }

    /// Records that the built commits landed.
    pub(super) fn landed(&mut self, head: String, branch: Option<String>) {
        let result = &mut self.result;
        result.head_after = head;
        result.branch = branch;
        result.success = result.conflicts.is_empty();
        for source in result.sources.iter().filter(|s| s.status != SourceStatus::Failed) {
            result.merged_sources.push(source.source_id);
            result.total_commits_applied += source.commits_applied;
        }
    }

    /// Records that nothing landed because something failed.
    pub(super) fn withheld(&mut self, branch: Option<String>) {
        self.result.branch = branch;
        for source in &mut self.result.sources {
            if source.status == SourceStatus::Merged {
                source.status = SourceStatus::Withheld;
                source.commits_applied = 0;
            }
        }
    }

    /// Records whether a source's branch was made.
    pub(super) fn branch(&mut self, index: usize, name: String, made: Result<(), ToolError>) {
        let Some(source) = self.result.sources.get_mut(index) else { return };
        match made {
            Ok(()) => source.branch = Some(name),
            Err(error) => source.branch_error = Some(error.to_text()),
        }
    }

    pub(super) fn into_result(self) -> MergeResult {
        self.result
    }
}

/// Newest common commits of two histories; empty when they share nothing.
///
/// # Errors
/// Errors of git.
pub(super) async fn bases(
    repo: &Repo<'_>,
    one: &str,
    other: &str,
) -> Result<Vec<String>, ToolError> {
    let args = ["merge-base", "--all", one, other];
    let done = repo.run(&args).await?;
    match done.exit_code {
        0 | 1 => {
            Ok(text(&done.stdout).lines().filter(|line| is_sha(line)).map(str::to_owned).collect())
        }
        _ => Err(failed(&args, &done)),
    }
}

pub(super) fn no_common_history() -> ToolError {
    let message = "its history and the target's share no commit";
    ToolError::new(Layer::Guest, codes::NO_COMMON_HISTORY, message)
        .next("merge only what was cloned or forked from the same repository")
}

/// Submodules that differ between two commits.
///
/// # Errors
/// Errors of git.
pub(super) async fn submodules(
    repo: &Repo<'_>,
    base: &str,
    tip: &str,
) -> Result<Vec<String>, ToolError> {
    let args = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-commit-id", base, tip];
    let done = repo.run(&args).await?;
    Ok(gitlinks(&done.stdout))
}

/// Parses the paths of submodules from `git diff-tree -r -z --raw`.
fn gitlinks(bytes: &[u8]) -> Vec<String> {
    let mut parts = bytes.split(|byte| *byte == 0);
    let mut found = Vec::new();
    while let (Some(facts), Some(path)) = (parts.next(), parts.next()) {
        let facts = text(facts);
        let mut modes = facts.trim_start_matches(':').split(' ').take(2);
        if modes.any(|mode| mode == "160000") && found.len() < MAX_SUBMODULES {
            found.push(shown(&text(path)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_among_files_are_submodules() {
        let output =
            b":100644 100644 a b M\0f\0:000000 160000 0 c A\0lib/x\0:160000 000000 c 0 D\0y\0";
        assert_eq!(gitlinks(output), ["lib/x", "y"]);
        assert_eq!(gitlinks(b""), [""; 0]);
    }
}
