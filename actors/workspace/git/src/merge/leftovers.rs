//! Garbage collection of what merges leave in repositories.
//!
//! Everything temporary carries the merge's id: files and the scratch tree in the repository's own
//! folder, commits under `refs/hivekeep/merge/ID/`. A merge removes its own at its end. Whatever
//! belongs to no running merge was left by one that was cut short.
//!
//! The merges that run hold a lease per target: at most one into a workspace at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashmap::{DashMap, DashSet};
use hivekeep_kernel::{Layer, ToolError, WorkspaceId};

use super::api::{Interrupted, InterruptedOutcome};
use super::repo::{Repo, is_sha, shown, text};
use crate::codes;

/// Prefix of the files of a merge.
const FILES: &str = "hivekeep-merge-";
/// Namespace of the refs of merges.
const REFS: &str = "refs/hivekeep/merge/";
/// Name of the target's commit before the last step.
pub(super) const FROM: &str = "from";
/// Name of the target's commit after it.
pub(super) const TO: &str = "to";
/// Maximum number of refs per run; the rest is for the next time.
const MOST: &str = "--count=1000";

/// Path of a merge's file in a repository.
pub(super) fn path(repo: &Repo<'_>, id: &str, kind: &str) -> String {
    format!("{}/{FILES}{id}.{kind}", repo.common)
}

/// Ref of a merge's commit.
pub(super) fn reference(id: &str, what: &str) -> String {
    format!("{REFS}{id}/{what}")
}

/// Removes the files of merges that are over.
///
/// # Errors
/// Fails when something could not be removed.
pub(super) async fn remove_files(repo: &Repo<'_>, running: &RunningMerge) -> Result<(), ToolError> {
    for name in repo.way.names(&repo.common).await? {
        let id = name.strip_prefix(FILES).and_then(|rest| rest.split_once('.'));
        if let Some((id, _)) = id.filter(|(id, _)| !running.is_going_on(id)) {
            tracing::info!(id, "removing leftovers of a merge");
            remove_file(repo, &name).await?;
        }
    }
    Ok(())
}

async fn remove_file(repo: &Repo<'_>, name: &str) -> Result<(), ToolError> {
    let path = format!("{}/{name}", repo.common);
    if name.ends_with(".tree") {
        // The entry in the list of work trees goes with it.
        let removed = repo.run(&["worktree", "remove", "--force", "--force", &path]).await?;
        if !removed.ok() {
            repo.way.remove(&format!("{}/worktrees/{name}", repo.common)).await?;
        }
    }
    repo.way.remove(&path).await
}

/// Removes everything that a merge has left in the target.
///
/// # Errors
/// Fails when something could not be removed; the next merge into the target removes it.
pub(super) async fn remove_own(target: &Repo<'_>, running: &RunningMerge) -> Result<(), ToolError> {
    for name in target.way.names(&target.common).await? {
        let own = name.strip_prefix(FILES).and_then(|rest| rest.strip_prefix(&*running.id));
        if own.is_some_and(|rest| rest.starts_with('.')) {
            remove_file(target, &name).await?;
        }
    }
    let refs = refs(target, &format!("{REFS}{}/", running.id)).await?;
    remove_refs(target, refs.keys()).await
}

/// Removes the leftovers of merges into this target that were cut short, and reports which of them
/// landed.
///
/// `merge_interrupted` when one may have stopped half way through its last step: then a person has
/// to look.
pub(super) async fn remove_all(
    target: &Repo<'_>,
    running: &RunningMerge,
) -> Result<Vec<Interrupted>, ToolError> {
    remove_files(target, running).await?;
    let mut merges: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (name, sha) in refs(target, REFS).await? {
        let id = name[REFS.len()..].split('/').next().unwrap_or_default().to_owned();
        if !running.is_going_on(&id) {
            merges.entry(id).or_default().insert(name, sha);
        }
    }
    let mut found = Vec::new();
    for (merge_id, refs) in merges {
        let commit = |what: &str| refs.get(&reference(&merge_id, what));
        let outcome = match (commit(FROM), commit(TO)) {
            (Some(from), Some(to)) => outcome(target, from, to).await?,
            _ => InterruptedOutcome::Undone,
        };
        remove_refs(target, refs.keys()).await?;
        found.push(Interrupted { merge_id: shown(&merge_id), outcome });
    }
    Ok(found)
}

/// Outcome of a merge that had begun its last step.
async fn outcome(target: &Repo<'_>, from: &str, to: &str) -> Result<InterruptedOutcome, ToolError> {
    let head = target.head().await?;
    if target.contains(&head, to).await? {
        return Ok(InterruptedOutcome::Landed);
    }
    let dirty = if head == from { in_the_way(target, from, to).await? } else { Vec::new() };
    if dirty.is_empty() {
        return Ok(InterruptedOutcome::Undone);
    }
    let message = "an earlier merge was cut short while it wrote the target's files";
    Err(ToolError::new(Layer::Guest, codes::MERGE_INTERRUPTED, message)
        .next(format!(
            "put the named files back in the target with `git restore --source={from}`, or move them away, and repeat"
        ))
        .detail("files", dirty)
        .detail("head", from.to_owned())
        .detail("wanted", to.to_owned()))
}

/// Paths that a step between two commits writes and that differ from the last commit.
pub(super) async fn in_the_way(
    target: &Repo<'_>,
    from: &str,
    to: &str,
) -> Result<Vec<String>, ToolError> {
    let args = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", from, to];
    let done = target.run(&args).await?;
    let said = text(&done.stdout);
    let written: Vec<&str> = said.split('\0').filter(|path| !path.is_empty()).collect();
    let mut found = target.changed().await?;
    found.retain(|changed| {
        let below = |path: &&str| path.starts_with(changed.as_str()) && changed.ends_with('/');
        written.iter().any(|path| path == changed || below(path))
    });
    found.truncate(200);
    Ok(found)
}

async fn refs(target: &Repo<'_>, below: &str) -> Result<BTreeMap<String, String>, ToolError> {
    let args = ["for-each-ref", MOST, "--format=%(objectname) %(refname)", below];
    let lines = target.lines(&args).await?;
    let split = |line: &String| {
        let (sha, name) = line.split_once(' ')?;
        (is_sha(sha) && name.starts_with(REFS)).then(|| (name.to_owned(), sha.to_owned()))
    };
    Ok(lines.iter().filter_map(split).collect())
}

async fn remove_refs(
    target: &Repo<'_>,
    names: impl Iterator<Item = &String>,
) -> Result<(), ToolError> {
    for name in names {
        target.must(&["update-ref", "--no-deref", "-d", name]).await?;
    }
    Ok(())
}

/// All merges of this daemon that go on. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Merges {
    targets: Arc<DashMap<WorkspaceId, String>>,
    ids: Arc<DashSet<String>>,
}

impl Merges {
    /// Begins a merge into a target.
    ///
    /// # Errors
    /// `merge_in_progress`.
    pub fn begin(&self, target: WorkspaceId) -> Result<RunningMerge, ToolError> {
        let id = uuid::Uuid::now_v7().simple().to_string();
        match self.targets.entry(target) {
            dashmap::Entry::Occupied(_) => {
                let message = "another merge into this workspace goes on";
                Err(ToolError::new(Layer::Actor, codes::MERGE_IN_PROGRESS, message)
                    .next("repeat when it has ended")
                    .retry_after(std::time::Duration::from_secs(1)))
            }
            dashmap::Entry::Vacant(free) => {
                self.ids.insert(id.clone());
                free.insert(id.clone());
                Ok(RunningMerge { id, target, all: self.clone() })
            }
        }
    }
}

/// Running merge; it ends when this is dropped.
#[derive(Debug)]
pub struct RunningMerge {
    /// Id that marks its temporary files and refs.
    pub(super) id: String,
    target: WorkspaceId,
    all: Merges,
}

impl RunningMerge {
    /// Id of the merge.
    #[cfg(test)]
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// True if a running merge has this id.
    fn is_going_on(&self, id: &str) -> bool {
        self.all.ids.contains(id)
    }
}

impl Drop for RunningMerge {
    fn drop(&mut self) {
        self.all.ids.remove(&self.id);
        self.all.targets.remove_if(&self.target, |_, id| *id == self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_per_target_at_a_time() {
        let (merges, one, two) = (Merges::default(), WorkspaceId::new(), WorkspaceId::new());
        let first = merges.begin(one).expect("begun");
        assert_eq!(merges.begin(one).expect_err("both").code, "merge_in_progress");
        let second = merges.begin(two).expect("another target");
        assert!(first.is_going_on(&second.id) && !first.is_going_on("other"));
        drop(first);
        assert!(merges.begin(one).is_ok());
    }
}
