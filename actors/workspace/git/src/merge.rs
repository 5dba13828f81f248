//! Merge saga: brings the commits of several repositories together in one.
//!
//! ```text
//!  source ── status ── bundle ─► file of this host ─► target: refs/hivekeep/merge/ID/…
//!                                                       │
//!    scratch tree at the target's HEAD ◄── source by source, by the strategy
//!                                                       │
//!    target's branch ◄── one fast-forward, if all went well
//! ```
//! The merge is built in a scratch work tree beside the target's own, so that the target itself
//! changes in one step or not at all. Temporary files and refs carry the merge's id and are removed
//! at its end; the next merge removes the leftovers of one that was cut short ([`leftovers`]). Both
//! ends are machines that are not trusted: their output is bounded, and only commit ids and bundles
//! pass from one to the other.

pub mod api;
mod collect;
mod conflict;
mod join;
mod leftovers;
mod replay;
mod repo;
mod report;
mod repository;

use std::path::Path;

use futures::{FutureExt, StreamExt};
use hivekeep_kernel::{Layer, Progress, ToolError, WorkspaceId, fault_point};

pub use leftovers::{Merges, RunningMerge};
pub use repository::{GuestRepository, Repository};

use crate::codes;
use api::{MergeResult, MergeStrategy};
use collect::{Collected, collect, receive, sample};
use conflict::Failure;
use join::Branch;
use leftovers::{FROM, TO};
use replay::{Applied, Tried};
use repo::{Repo, failed};
use report::Report;

/// Maximum number of sources collected at the same time.
const AT_ONCE: usize = 4;

/// Parameters of a merge.
#[derive(Debug, Clone)]
pub struct MergeRequest {
    /// Path of the repository, the same in all workspaces.
    pub path: String,
    /// Strategy of the merge.
    pub strategy: MergeStrategy,
    /// Message of commits that the merge makes.
    pub commit_message: Option<String>,
    /// Commit the sources' uncommitted work first.
    pub commit_uncommitted: bool,
    /// Land what merged even if another source failed.
    pub keep_going: bool,
}

/// Workspace that takes part in a merge.
pub struct MergeSide {
    /// Id of the workspace.
    pub id: WorkspaceId,
    /// Name of the workspace.
    pub name: String,
    /// Access to its repository, or the reason why there is none.
    pub repository: Result<Box<dyn Repository>, ToolError>,
}

/// Merges `sources` into `target`. `spool` is a folder of this host for bundles.
///
/// # Errors
/// Fails when nothing could be tried, or the result could not be landed on the target's branch:
/// then the target is unchanged. A failed source is part of the result.
pub async fn merge(
    request: &MergeRequest,
    running: &RunningMerge,
    target: &MergeSide,
    sources: &[MergeSide],
    spool: &Path,
    progress: &Progress,
) -> Result<MergeResult, ToolError> {
    let way = target.repository.as_ref().map_err(Clone::clone)?;
    let repo = Repo::open(&**way, &request.path).await?;
    let interrupted = leftovers::remove_all(&repo, running).await?;
    repo.idle().await?;
    let head = repo.head().await?;
    let attempt = Attempt { request, running, target: &repo, sources, spool, progress };
    let outcome = attempt.run(Report::new(request, target, head, interrupted)).await;
    way.see_it_through();
    if let Err(error) = leftovers::remove_own(&repo, running).await {
        tracing::warn!(merge = running.id, %error, "leftovers of a merge stay until the next one");
    }
    outcome
}

/// Merge in progress.
struct Attempt<'a> {
    request: &'a MergeRequest,
    running: &'a RunningMerge,
    target: &'a Repo<'a>,
    sources: &'a [MergeSide],
    spool: &'a Path,
    progress: &'a Progress,
}

impl Attempt<'_> {
    async fn run(&self, mut report: Report) -> Result<MergeResult, ToolError> {
        let from = report.head_before().to_owned();
        let sample = sample(self.target, &from).await?;
        let scratch = self.scratch(&from).await?;
        let mut branches = Vec::new();
        let collecting: Vec<_> =
            self.sources.iter().map(|source| self.collect(source, &sample).boxed()).collect();
        let mut collected = futures::stream::iter(collecting).buffered(AT_ONCE);
        for (index, source) in self.sources.iter().enumerate() {
            let Some(has) = collected.next().await else { break };
            self.report_progress(index, source);
            report.begin(source, &has);
            match self.add(&scratch, index, source, has, &mut report).await? {
                Ok(branch) => branches.extend(branch.map(|branch| (index, branch))),
                Err(failure) => report.failed(failure),
            }
        }
        drop(collected);
        if report.may_land(self.request.keep_going) {
            let to = scratch.head().await?;
            self.target.way.see_it_through();
            land_if_needed(self.target, self.running, &from, &to).await?;
            report.landed(to, branch_name(self.target).await?);
            for (index, branch) in branches {
                let made = branch.make(self.target).await;
                report.branch(index, branch.name, made);
            }
        } else {
            report.withheld(branch_name(self.target).await?);
        }
        Ok(report.into_result())
    }

    /// Makes a work tree at the target's commit, beside its own.
    async fn scratch(&self, head: &str) -> Result<Repo<'_>, ToolError> {
        let path = leftovers::path(self.target, &self.running.id, "tree");
        self.target.must(&["worktree", "add", "--quiet", "--detach", &path, head]).await?;
        Ok(self.target.at(path))
    }

    async fn collect(&self, source: &MergeSide, sample: &[String]) -> Collected {
        match &source.repository {
            Ok(way) => {
                collect(&**way, self.request, self.running, &source.name, sample, self.spool).await
            }
            Err(error) => {
                Collected { uncommitted: Vec::new(), committed: None, commits: Err(error.clone()) }
            }
        }
    }

    /// Adds one source to the scratch tree, or leaves the tree unchanged.
    async fn add(
        &self,
        scratch: &Repo<'_>,
        index: usize,
        source: &MergeSide,
        has: Collected,
        report: &mut Report,
    ) -> Tried<Option<Branch>> {
        let commits = match has.commits {
            Ok(commits) => commits,
            Err(error) => return Ok(Err(error.into())),
        };
        let received = receive(self.target, self.running, index, &source.name, commits).await?;
        let tip = match received {
            Ok(tip) => tip,
            Err(error) => return Ok(Err(error.into())),
        };
        let before = scratch.head().await?;
        let bases = report::bases(scratch, &before, &tip).await?;
        report.found(&tip, &bases);
        let Some(base) = bases.first() else {
            return Ok(Err(report::no_common_history().into()));
        };
        if *base == tip {
            report.up_to_date();
            return Ok(Ok(None));
        }
        report.submodules(report::submodules(scratch, base, &tip).await?);
        let tried = self.apply(scratch, source, &tip).await?;
        match tried {
            Ok((applied, branch)) => {
                report.applied(applied);
                Ok(Ok(branch))
            }
            Err(failure) => {
                // Drop the rest of a sequence of commits, then the files.
                scratch.run(&["cherry-pick", "--quit"]).await?;
                scratch.must(&["reset", "--quiet", "--hard", &before]).await?;
                scratch.must(&["clean", "-ffdxq"]).await?;
                Ok(Err(failure))
            }
        }
    }

    async fn apply(
        &self,
        scratch: &Repo<'_>,
        source: &MergeSide,
        tip: &str,
    ) -> Tried<(Applied, Option<Branch>)> {
        let alone = |tried: Result<Applied, Failure>| tried.map(|applied| (applied, None));
        match self.request.strategy {
            MergeStrategy::Sequential => Ok(alone(replay::in_a_line(scratch, tip).await?)),
            MergeStrategy::CherryPick => Ok(alone(replay::in_shape(scratch, tip).await?)),
            MergeStrategy::BranchPerSource => {
                let branch = match Branch::plan(self.target, &source.name, tip).await? {
                    Ok(branch) => branch,
                    Err(failure) => return Ok(Err(failure)),
                };
                let own = format!("Merge workspace '{}'", source.name);
                let message = self.request.commit_message.as_deref().unwrap_or(&own);
                let joined = join::join(scratch, tip, message).await?;
                Ok(joined.map(|applied| (applied, Some(branch))))
            }
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "at most twenty")]
    fn report_progress(&self, index: usize, source: &MergeSide) {
        let all = Some(self.sources.len() as f64);
        self.progress.report(index as f64, all, format!("merging {}", source.name));
    }
}

/// Branch that is checked out; `None` when HEAD is detached.
async fn branch_name(target: &Repo<'_>) -> Result<Option<String>, ToolError> {
    let done = target.run(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
    Ok(done.ok().then(|| repo::shown(repo::text(&done.stdout).trim())))
}

/// Fast-forwards the target from one commit to another; does nothing if they are the same. Git
/// checks first whether this would overwrite anything, including ignored files, and changes nothing
/// then.
///
/// # Errors
/// `target_moved`, `target_dirty`, `git_failed`: the target is unchanged then.
async fn land_if_needed(
    target: &Repo<'_>,
    running: &RunningMerge,
    from: &str,
    to: &str,
) -> Result<(), ToolError> {
    if from == to {
        return Ok(());
    }
    if target.head().await? != from {
        let message = "something else was committed in the target meanwhile";
        return Err(ToolError::new(Layer::Guest, codes::TARGET_MOVED, message)
            .next("repeat the merge")
            .retryable());
    }
    // Intent record: from here on a daemon that is cut short leaves refs that say what it was about
    // to do.
    for (what, sha) in [(FROM, from), (TO, to)] {
        let name = leftovers::reference(&running.id, what);
        target.must(&["update-ref", "--no-deref", &name, sha]).await?;
    }
    fault_point!("workspace_merge.before_landing");
    let orig = target.resolve("ORIG_HEAD").await?;
    let args = [
        "merge",
        "--quiet",
        "--ff-only",
        "--no-overwrite-ignore",
        "--no-stat",
        "--no-autostash",
        "--no-verify",
        to,
    ];
    let merged = target.run(&args).await?;
    if merged.ok() && target.head().await? == to {
        fault_point!("workspace_merge.after_landing");
        return Ok(());
    }
    // Restored because git writes it before it checks.
    match orig {
        Some(orig) => target.run(&["update-ref", "--no-deref", "ORIG_HEAD", &orig]).await?,
        None => target.run(&["update-ref", "--no-deref", "-d", "ORIG_HEAD"]).await?,
    };
    let error = failed(&args, &merged);
    let files = leftovers::in_the_way(target, from, to).await?;
    let output = error.details.get("output").cloned().unwrap_or_default();
    if merged.exit_code == 1 && target.head().await? == from {
        let message = "the merge would overwrite work in the target that is not committed";
        return Err(ToolError::new(Layer::Guest, codes::TARGET_DIRTY, message)
            .next("commit or move away in the target what the output names, and repeat")
            .detail("files", files)
            .detail("output", output));
    }
    Err(error)
}

#[cfg(test)]
mod tests;
