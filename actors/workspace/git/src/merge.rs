//! Commits of several repositories brought together in one.
//!
//! ```text
//!  source ── status ── bundle ─► file of this host ─► target: refs/hivekeep/merge/ID/…
//!                                                       │
//!    scratch tree at the target's HEAD ◄── source by source, by the strategy
//!                                                       │
//!    target's branch ◄── one fast-forward, if all went well
//! ```
//! Everything is tried in a work tree beside the target's own, so that the target itself
//! changes in one step or not at all. What is needed for that carries the merge's id and
//! is removed at its end; what a merge that was cut short left, the next one removes
//! ([`leftovers`]). Both ends are machines that are not trusted: what they say is bounded,
//! and what one says is handed to the other only as a commit's id or as a bundle.

pub mod api;
mod collect;
mod conflict;
mod guest;
mod join;
mod land;
mod leftovers;
mod replay;
mod repo;
mod report;
mod repository;
mod running;
#[cfg(test)]
mod tests;

use std::path::Path;

use futures::{FutureExt, StreamExt};
use hivekeep_kernel::{Progress, ToolError, WorkspaceId};

use self::{
    collect::{Collected, collect, receive, sample},
    conflict::Failure,
    join::Branch,
    replay::{Applied, Tried},
    repo::Repo,
    report::Report,
};
pub use self::{
    guest::GuestRepository,
    repository::Repository,
    running::{Merges, Running},
};
use crate::merge::api::{MergeResult, MergeStrategy};

/// Sources that are collected at the same time.
const AT_ONCE: usize = 4;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Where the repository is, everywhere.
    pub path: String,
    /// How.
    pub strategy: MergeStrategy,
    /// For commits that are made.
    pub commit_message: Option<String>,
    /// Make commits of what is not committed in the sources.
    pub commit_uncommitted: bool,
    /// Keep what merged when something else did not.
    pub keep_going: bool,
}

/// A workspace that takes part.
pub struct Side {
    /// Its id.
    pub id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// The way to its repository, or why there is none.
    pub repository: Result<Box<dyn Repository>, ToolError>,
}

/// Merges `sources` into `target`. `spool` is a folder of this host for bundles.
///
/// # Errors
/// When nothing could be tried, or what was tried could not be brought to the target's
/// branch: then the target is as it was. That a source fails is an outcome.
pub async fn merge(
    wish: &Wish,
    running: &Running,
    target: &Side,
    sources: &[Side],
    spool: &Path,
    progress: &Progress,
) -> Result<MergeResult, ToolError> {
    let way = target.repository.as_ref().map_err(Clone::clone)?;
    let repo = Repo::open(&**way, &wish.path).await?;
    let interrupted = leftovers::remove_all(&repo, running).await?;
    repo.idle().await?;
    let head = repo.head().await?;
    let attempt = Attempt { wish, running, target: &repo, sources, spool, progress };
    let outcome = attempt.run(Report::new(wish, target, head, interrupted)).await;
    way.see_it_through();
    if let Err(error) = leftovers::remove_own(&repo, running).await {
        tracing::warn!(merge = running.id, %error, "what a merge left stays until the next one");
    }
    outcome
}

/// One merge under way.
struct Attempt<'a> {
    wish: &'a Wish,
    running: &'a Running,
    target: &'a Repo<'a>,
    sources: &'a [Side],
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
            self.tell(index, source);
            report.begin(source, &has);
            match self.add(&scratch, index, source, has, &mut report).await? {
                Ok(branch) => branches.extend(branch.map(|branch| (index, branch))),
                Err(failure) => report.failed(failure),
            }
        }
        drop(collected);
        if report.may_land(self.wish.keep_going) {
            let to = scratch.head().await?;
            self.target.way.see_it_through();
            land::land_if_needed(self.target, self.running, &from, &to).await?;
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

    /// A work tree at the target's commit, beside its own.
    async fn scratch(&self, head: &str) -> Result<Repo<'_>, ToolError> {
        let path = leftovers::path(self.target, &self.running.id, "tree");
        self.target.must(&["worktree", "add", "--quiet", "--detach", &path, head]).await?;
        Ok(self.target.at(path))
    }

    async fn collect(&self, source: &Side, sample: &[String]) -> Collected {
        match &source.repository {
            Ok(way) => {
                collect(&**way, self.wish, self.running, &source.name, sample, self.spool).await
            }
            Err(error) => {
                Collected { uncommitted: Vec::new(), committed: None, commits: Err(error.clone()) }
            }
        }
    }

    /// Adds one source to the scratch tree, or leaves that as it was.
    async fn add(
        &self,
        scratch: &Repo<'_>,
        index: usize,
        source: &Side,
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
                // What a sequence of commits left, then the files.
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
        source: &Side,
        tip: &str,
    ) -> Tried<(Applied, Option<Branch>)> {
        let alone = |tried: Result<Applied, Failure>| tried.map(|applied| (applied, None));
        match self.wish.strategy {
            MergeStrategy::Sequential => Ok(alone(replay::in_a_line(scratch, tip).await?)),
            MergeStrategy::CherryPick => Ok(alone(replay::in_shape(scratch, tip).await?)),
            MergeStrategy::BranchPerSource => {
                let branch = match Branch::plan(self.target, &source.name, tip).await? {
                    Ok(branch) => branch,
                    Err(failure) => return Ok(Err(failure)),
                };
                let own = format!("Merge workspace '{}'", source.name);
                let message = self.wish.commit_message.as_deref().unwrap_or(&own);
                let joined = join::join(scratch, tip, message).await?;
                Ok(joined.map(|applied| (applied, Some(branch))))
            }
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "at most twenty")]
    fn tell(&self, index: usize, source: &Side) {
        let all = Some(self.sources.len() as f64);
        self.progress.report(index as f64, all, format!("merging {}", source.name));
    }
}

/// The branch that is checked out; none when HEAD is detached.
async fn branch_name(target: &Repo<'_>) -> Result<Option<String>, ToolError> {
    let said = target.run(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
    Ok(said.ok().then(|| repo::shown(repo::text(&said.stdout).trim())))
}
