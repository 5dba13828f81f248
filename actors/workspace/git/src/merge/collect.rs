//! Transfer of one source's commits as a git bundle, from its repository to a file of this host.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use hivekeep_kernel::{Layer, ToolError};

use super::MergeRequest;
use super::leftovers::{self, RunningMerge};
use super::repo::{Repo, is_sha, nonsense, shown, text};
use super::repository::Repository;
use crate::codes;

/// Maximum size of one source's bundle.
pub(super) const MAX_BUNDLE_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// Sizes of the sample of the target's commits that a source is asked for: all of the newest, then
/// every eighth.
const NEWEST: usize = 512;
const FURTHER: usize = 4096;
/// Maximum number of root commits of the target's history that a source is asked for.
const ROOTS: usize = 16;
/// Maximum number of prerequisite commits of a bundle; git finds out which of them matter.
const STANDS_ON: usize = 64;

/// Collected state of a source.
pub(super) struct Collected {
    /// Files in no commit when the source was inspected.
    pub(super) uncommitted: Vec<String>,
    /// Commit that was made of them.
    pub(super) committed: Option<String>,
    /// Commits of the source, or the reason why they are unavailable.
    pub(super) commits: Result<Commits, ToolError>,
}

/// Commits of a source.
pub(super) enum Commits {
    /// Head of the source, whose whole history the target has.
    Known(String),
    /// Bundle of the commits that the target may lack.
    Bundle {
        /// Open file without a name, positioned at its start.
        file: File,
        /// Size of the bundle in bytes.
        bytes: u64,
        /// True if the source's history ends artificially, as in a shallow clone.
        shallow: bool,
    },
}

/// Samples the target's commits, newest first, to find out which ones a source need not send.
///
/// # Errors
/// Errors of the target's git.
pub(super) async fn sample(target: &Repo<'_>, head: &str) -> Result<Vec<String>, ToolError> {
    let most = format!("--max-count={FURTHER}");
    let all = target.lines(&["rev-list", &most, head]).await?;
    let roots = format!("--max-count={ROOTS}");
    let roots = target.lines(&["rev-list", "--max-parents=0", &roots, head]).await?;
    // Checked because they become arguments of a command in another guest.
    if let Some(other) = all.iter().chain(&roots).find(|line| !is_sha(line)) {
        return Err(nonsense(&["rev-list"], other));
    }
    let newest = all.iter().take(NEWEST);
    let further = all.iter().skip(NEWEST).step_by(8);
    Ok(newest.chain(further).chain(&roots).cloned().collect())
}

/// Collects what a source has and the target may lack.
pub(super) async fn collect(
    way: &dyn Repository,
    request: &MergeRequest,
    running: &RunningMerge,
    name: &str,
    sample: &[String],
    spool: &Path,
) -> Collected {
    let mut collected = Collected {
        uncommitted: Vec::new(),
        committed: None,
        commits: Err(ToolError::cancelled()),
    };
    collected.commits = async {
        let repo = Repo::open(way, &request.path).await?;
        leftovers::remove_files(&repo, running).await?;
        look_at_uncommitted(&repo, request, name, &mut collected).await?;
        let head = repo.head().await?;
        let shared = shared(&repo, sample).await?;
        if nothing_beyond(&repo, &head, &shared).await? {
            return Ok(Commits::Known(head));
        }
        bundle(&repo, running, &shared, spool).await
    }
    .await;
    collected
}

async fn look_at_uncommitted(
    repo: &Repo<'_>,
    request: &MergeRequest,
    name: &str,
    collected: &mut Collected,
) -> Result<(), ToolError> {
    collected.uncommitted = repo.changed().await?;
    if collected.uncommitted.is_empty() || !request.commit_uncommitted {
        return Ok(());
    }
    repo.idle().await?;
    repo.must(&["add", "--all"]).await?;
    let message =
        request.commit_message.clone().unwrap_or_else(|| format!("Uncommitted work of {name}"));
    let staged = repo.run(&["diff", "--cached", "--quiet", "--no-ext-diff"]).await?;
    if !staged.ok() {
        repo.must(&["commit", "--quiet", "--no-verify", "-m", &message]).await?;
        collected.committed = Some(repo.head().await?);
    }
    Ok(())
}

/// Commits of the sample that the source has, newest first.
async fn shared(repo: &Repo<'_>, sample: &[String]) -> Result<Vec<String>, ToolError> {
    let mut args = vec!["rev-list", "--no-walk=unsorted", "--ignore-missing"];
    args.extend(sample.iter().map(String::as_str));
    let known = repo.lines(&args).await?;
    // Commits that a guest makes up beyond the question are not passed on.
    Ok(known.into_iter().filter(|sha| sample.contains(sha)).take(STANDS_ON).collect())
}

async fn nothing_beyond(repo: &Repo<'_>, head: &str, shared: &[String]) -> Result<bool, ToolError> {
    let mut args = vec!["rev-list", "--max-count=1", head, "--not"];
    args.extend(shared.iter().map(String::as_str));
    Ok(!shared.is_empty() && repo.lines(&args).await?.is_empty())
}

async fn bundle(
    repo: &Repo<'_>,
    running: &RunningMerge,
    shared: &[String],
    spool: &Path,
) -> Result<Commits, ToolError> {
    let shallow = repo.line(&["rev-parse", "--is-shallow-repository"]).await? == "true";
    let path = leftovers::path(repo, &running.id, "bundle");
    let fetched = async {
        let mut args = vec!["bundle", "create", "--quiet", &path, "HEAD", "--not"];
        args.extend(shared.iter().map(String::as_str));
        repo.must(&args).await?;
        let mut file = spool_file(spool)?;
        let into = file.try_clone().map_err(|error| host_failed(&error))?;
        let bytes = repo.way.fetch(&path, into, MAX_BUNDLE_BYTES).await?;
        file.seek(SeekFrom::Start(0)).map_err(|error| host_failed(&error))?;
        Ok(Commits::Bundle { file, bytes, shallow })
    }
    .await;
    // Removed even if the caller has gone meanwhile.
    repo.way.see_it_through();
    if let Err(error) = repo.way.remove(&path).await {
        tracing::warn!(%error, "a bundle is left in a guest until its next merge");
    }
    fetched
}

/// Unnamed temporary file: it is gone when closed, also by the end of the daemon.
fn spool_file(spool: &Path) -> Result<File, ToolError> {
    tempfile::tempfile_in(spool).map_err(|error| host_failed(&error))
}

fn host_failed(error: &std::io::Error) -> ToolError {
    let code = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            codes::HOST_DISK_FULL
        }
        _ => codes::HOST_FILE_FAILED,
    };
    ToolError::new(Layer::Machine, code, format!("no place for a bundle: {error}"))
}

/// Brings the commits into the target, under a ref of the merge. Returns the source's commit.
///
/// # Errors
/// Outer error: failure of the target; inner error: defect of the bundle.
pub(super) async fn receive(
    target: &Repo<'_>,
    running: &RunningMerge,
    index: usize,
    name: &str,
    commits: Commits,
) -> Result<Result<String, ToolError>, ToolError> {
    let (file, bytes, shallow) = match commits {
        Commits::Known(head) => return known_head(target, head).await,
        Commits::Bundle { file, bytes, shallow } => (file, bytes, shallow),
    };
    let path = leftovers::path(target, &running.id, &format!("{index}.bundle"));
    target.way.send(&path, file, bytes).await?;
    let reference = leftovers::reference(&running.id, &format!("source-{index}-{name}"));
    let fetched = unpack(target, &path, &reference, shallow).await;
    target.way.remove(&path).await?;
    fetched
}

/// Verifies with the target's git that the target's branch has the commit, as the source claims.
async fn known_head(
    target: &Repo<'_>,
    head: String,
) -> Result<Result<String, ToolError>, ToolError> {
    Ok(match target.resolve(&head).await? {
        Some(known) if known == head && target.contains("HEAD", &head).await? => Ok(head),
        _ => Err(refused("the source's commit is not in the target", "")),
    })
}

async fn unpack(
    target: &Repo<'_>,
    path: &str,
    reference: &str,
    shallow: bool,
) -> Result<Result<String, ToolError>, ToolError> {
    let verified = target.run(&["bundle", "verify", "--quiet", path]).await?;
    if !verified.ok() {
        let output = text(&verified.stderr);
        return Ok(Err(refused("the bundle of its commits is not sound", &output)));
    }
    let spec = format!("+HEAD:{reference}");
    let args = [
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-recurse-submodules",
        path,
        &spec,
    ];
    let fetched = target.run(&args).await?;
    if !fetched.ok() {
        let output = text(&fetched.stderr);
        let error = refused("the bundle of its commits could not be read", &output);
        return Ok(Err(match shallow {
            true => ToolError { code: codes::SOURCE_SHALLOW.name.into(), ..error }
                .next("its clone is shallow and ends before what the target has: fetch more of its history there with `git fetch --unshallow`"),
            false => error,
        }));
    }
    match target.resolve(reference).await? {
        Some(head) => Ok(Ok(head)),
        None => Ok(Err(refused("the bundle contains no commit", ""))),
    }
}

fn refused(message: &str, output: &str) -> ToolError {
    ToolError::new(Layer::Guest, codes::BUNDLE_REFUSED, message)
        .next("look at the source with `git fsck`")
        .detail("output", shown(output))
}
