//! Clone of a remote: a volume, a workspace with it, a tree beside, and its place.
//!
//! The tree and the one beside are names in the root of the volume, so no path of a guest's making is
//! followed, and the file system exchanges them in one transaction: at any moment one whole tree has the label.

use std::{fs::File, io, path::Path, sync::Arc};

use chrono::Utc;
use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{CallCx, Layer, RepositoryId, ToolError, VolumeId, fault_point};
use hivekeep_ports::{AttachedVolume, MountSource};
use hivekeep_runtime::log::{self, Decision, Log};
use rustix::{
    fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with, syncfs},
    io::Errno,
};
use serde::Deserialize;
use serde_json::json;

use crate::{
    binding::{Binding, BindingTerms, GitRefKind, Record},
    codes,
    machine::{GitMachine, Reach, failed},
    operation::{Finished, ListedVolume, RepositoryJob, run},
    remote::Remote,
    repositories::{Repositories, RepositoryResult, admit, volume_label},
    tools::{BindingRow, RepositoryClone},
};

/// Checks out a commit alone, without what hooks of the tree would do.
const CHECK_OUT: &str =
    "cd \".$LABEL.new\" && git -c core.hooksPath=/dev/null checkout --quiet --detach \"$SHA\" --";

impl Repositories {
    /// Binds a remote and begins to clone it.
    ///
    /// # Errors
    /// Those of the address and of the terms; `name_taken`, `repository_quota_exceeded`.
    pub(crate) async fn bind(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryClone,
    ) -> RepositoryResult<BindingRow> {
        let owner = self.sessions.caller(cx.session)?;
        let remote = Remote::parse(&input.repo_url)?;
        self.check(&input, &remote)?;
        let volume_bytes =
            input.size_limit_bytes.unwrap_or(self.options.volume_mb.saturating_mul(1 << 20));
        let terms = BindingTerms {
            owner,
            label: input.label,
            repo_url: input.repo_url,
            credential_binding_id: input.credential_binding_id,
            git_ref: input.git_ref,
            sparse_paths: input.sparse_paths,
            shallow: input.shallow,
            volume_bytes,
            created_at: Utc::now(),
        };
        let id = RepositoryId::new();
        let (log, written) = {
            let mut logs = self.logs();
            admit(&logs, owner, &terms.label, self.most(owner))?;
            let stream = log::stream::<Binding>(id)
                .map_err(|error| ToolError::internal(error.to_string()))?;
            let log = Log::of(self.journal.clone(), stream, None);
            let wanted = Decision::record(Record::Wanted { terms, session: cx.session });
            let written = log.decide(|_| Ok::<_, ToolError>(wanted))?;
            logs.insert(id, log.clone());
            (log, written)
        };
        written.await?;
        fault_point!("repository.after_wanted");
        let job = RepositoryJob::new(self.clone(), id, log, cx.progress.clone(), input.credential)?;
        let row = self.row(id, &job.binding);
        let _goes_on = tokio::spawn(async move {
            // Its own failure is recorded, and told by `status`; one of the journal is told here alone.
            if let Err(error) = run(Arc::new(job), cloned).await {
                tracing::warn!(repository = %id, %error, "a clone failed");
            }
        });
        Ok(row)
    }

    fn check(&self, input: &RepositoryClone, remote: &Remote) -> RepositoryResult<()> {
        if input.auto_refresh {
            let message = "nothing refreshes a repository by itself here";
            return Err(ToolError::new(Layer::Actor, codes::AUTO_REFRESH_UNSUPPORTED, message)
                .next("leave `auto_refresh` out, and call aegis.git.refresh when it is needed"));
        }
        let Some(wanted) = &input.credential_binding_id else { return Ok(()) };
        let used = self.credentials.used_for(&remote.address());
        if used.as_ref() == Some(wanted) {
            return Ok(());
        }
        let message = match used {
            Some(used) => format!("`{used}` is what git answers this remote, not `{wanted}`"),
            None => format!("`{wanted}` is not a credential for this remote"),
        };
        Err(ToolError::new(Layer::Actor, codes::CREDENTIAL_UNKNOWN, message)
            .next("leave it out; `host` of an entry in git.credentials is its id"))
    }
}

/// Clones what was bound.
pub(crate) fn cloned(
    job: Arc<RepositoryJob>,
) -> BoxFuture<'static, RepositoryResult<Finished<()>>> {
    async move {
        if job.binding.volume.is_none() {
            make_volume(&job).await?;
        }
        let machine = GitMachine::open(&job, Reach::Reads).await?;
        let placed = match fetched(&machine).await {
            Ok(commit) => in_place(&job).await.map(|()| commit),
            Err(error) => Err(error),
        };
        machine.close().await;
        Ok(Finished { value: (), commit: placed? })
    }
    .boxed()
}

/// Makes the volume, or takes the one that was made for this repository before the daemon died.
async fn make_volume(job: &RepositoryJob) -> RepositoryResult<()> {
    #[derive(Deserialize)]
    struct Made {
        volume_id: VolumeId,
    }
    job.step("making the volume");
    let terms = &job.binding.terms;
    let label = volume_label(&terms.label);
    let is_ours = |row: &ListedVolume| {
        row.label == label && row.created_at >= terms.created_at && row.workspaces.is_empty()
    };
    let volume = match job.volumes().await?.into_iter().find(is_ours) {
        Some(row) => row.volume_id,
        None => {
            let args = json!({ "label": label, "size_limit_bytes": terms.volume_bytes });
            job.call::<Made>("aegis.volume.create", args).await?.volume_id
        }
    };
    fault_point!("repository.after_volume");
    let made = Decision::record(Record::VolumeMade { volume });
    job.log.decide(|_| Ok::<_, ToolError>(made))?.await?;
    fault_point!("repository.after_volume_made");
    Ok(())
}

/// Clones into the tree beside; its commit.
async fn fetched(machine: &GitMachine<'_>) -> RepositoryResult<Option<String>> {
    #[derive(Deserialize)]
    struct Cloned {
        commit_sha: Option<String>,
    }
    let job = machine.job;
    let terms = &job.binding.terms;
    let (new, by_commit) = (beside(&terms.label), terms.git_ref.kind == GitRefKind::Commit);
    let depth = terms.shallow.then_some(1);
    job.step("cloning");
    let branch = (!by_commit).then_some(&terms.git_ref.value);
    let args = json!({
        "url": job.remote.address(), "branch": branch, "depth": depth,
        "sparse_paths": terms.sparse_paths,
    });
    let cloned: Cloned = machine.git_remote("git_clone", &new, args).await?;
    fault_point!("repository.after_clone");
    if !by_commit {
        return Ok(cloned.commit_sha);
    }
    job.step("fetching the commit");
    let args = json!({ "commit": terms.git_ref.value, "depth": depth });
    let fetched: Cloned = machine.git_remote("git_fetch", &new, args).await?;
    let checked_out = machine.sh(CHECK_OUT, json!({ "SHA": fetched.commit_sha })).await?;
    match checked_out.exit_code {
        0 => Ok(fetched.commit_sha),
        _ => Err(failed("the commit could not be checked out", &checked_out)),
    }
}

/// Puts the tree beside in its place.
///
/// # Errors
/// `repository_failed`; then the old tree has its place.
pub(crate) async fn in_place(job: &RepositoryJob) -> RepositoryResult<()> {
    job.step("putting the tree in its place");
    let volume = MountSource::Volume(job.volume()?);
    let attached = AttachedVolume { volume, path: "/".to_owned(), read_only: false };
    let folders = job.service.volumes.mount(&[attached]).await?;
    let folder = folders.into_iter().next();
    let folder = folder.ok_or_else(|| ToolError::internal("a mounted volume has no folder"))?;
    let label = job.binding.terms.label.clone();
    let placed = tokio::task::spawn_blocking(move || put_in_place(&folder.folder, &label)).await;
    let placed = placed.map_err(|panic| ToolError::internal(format!("a repository: {panic}")))?;
    placed.map_err(|error| {
        let message = format!("the tree could not be put in its place: {error}");
        ToolError::new(Layer::Machine, codes::REPOSITORY_FAILED, message)
            .next("look at `hivekeep check` and `hivekeep logs` on the host")
    })
}

/// Name of the tree beside the one with the label.
fn beside(label: &str) -> String {
    format!(".{label}.new")
}

/// Puts the tree beside in the place of the other, durably, and removes that. Blocks.
///
/// # Errors
/// Where one could not be exchanged for the other; then the old tree has its place. What could not be
/// removed of the old one is none: the next operation removes it.
fn put_in_place(volume: &Path, label: &str) -> io::Result<()> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = File::from(openat(CWD, volume, how, Mode::empty())?);
    let new = beside(label);
    // Its files are on the disk before they have the place.
    syncfs(&root)?;
    fault_point!("repository.before_exchange");
    match renameat_with(&root, &new, &root, label, RenameFlags::EXCHANGE) {
        Err(Errno::NOENT) => renameat_with(&root, &new, &root, label, RenameFlags::NOREPLACE)?,
        exchanged => exchanged?,
    }
    fault_point!("repository.after_exchange");
    syncfs(&root)?;
    if let Err(error) = hivekeep_fs::remove_tree(&volume.join(&new)) {
        tracing::warn!(%label, %error, "a repository's old tree stays until its next operation");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_tree_has_the_place_and_the_old_one_is_gone() {
        let volume = tempfile::tempdir().expect("a folder");
        let at = |path: &str| volume.path().join(path);
        let make = |folder: &str, text: &str| {
            std::fs::create_dir(at(folder)).expect("made");
            std::fs::write(at(folder).join("file"), text).expect("written");
        };
        assert!(put_in_place(volume.path(), "app").is_err(), "there is none");
        for text in ["one", "two"] {
            make(".app.new", text);
            put_in_place(volume.path(), "app").expect("put in place");
            assert_eq!(std::fs::read_to_string(at("app/file")).expect("read"), text);
            assert!(!at(".app.new").exists());
        }
        assert!(put_in_place(volume.path(), "app").is_err());
        assert!(at("app/file").exists(), "the old one stays");
        // A link in its place is exchanged, and what it leads to stays.
        std::os::unix::fs::symlink(at("app"), at("link")).expect("linked");
        make(".link.new", "three");
        put_in_place(volume.path(), "link").expect("put in place");
        assert_eq!(std::fs::read_to_string(at("app/file")).expect("read"), "two");
        assert_eq!(std::fs::read_to_string(at("link/file")).expect("read"), "three");
    }
}
