//! Files between the host's transfer directory and the guest.
//!
//! The host side is opened beneath a handle on the directory (openat2 with
//! `RESOLVE_BENEATH`), so that neither `..` nor a symlink leads out of it, also
//! not one that is put there between a check and its use.

pub(crate) mod sink;

use std::{
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use hivekeep_kernel::{CallCx, Layer, Progress, Reply, ToolError, fault_point};
use hivekeep_link::{Link, LinkError, link_error};
use hivekeep_protocol::{WriteFile, WriteFileAs};
use rustix::{
    fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

use self::sink::DiskSink;
use crate::{
    codes,
    commands::user,
    files::{Direction, FileTransfer, FileTransferred},
    link_state,
    state::Workspace,
    transfer_quota::{self, TransferQuota},
};

/// `file_transfer`.
///
/// # Errors
/// When the workspace does not run or the host's path leads out of the transfer directory.
pub(crate) fn file_transfer(
    state: &mut Workspace,
    cx: &CallCx,
    input: FileTransfer,
) -> Result<Reply<FileTransferred>, ToolError> {
    let root = state.handle.shared.folders.transfers.clone();
    let inside = inside(&root, &input.host_path)?;
    // A file cannot be larger than the workspace's disk, but a guest could send for ever.
    let most_bytes = state.ledger.plan.spec.disk_gb << 30;
    let user = user::other_than_root(&state.ledger, None)?;
    let (link, cx) = (state.guest(cx)?, cx.clone());
    let (room, quota) =
        (state.handle.shared.daemon.room.clone(), state.handle.shared.transfers.clone());
    Ok(Reply::later(async move {
        if input.direction == Direction::Download {
            let (quota, root) = (quota.clone(), root.clone());
            beside(move || room.admit(&root).and_then(|()| quota.admit(&root))).await?;
        }
        let link = link.await?;
        let host_path = root.join(&inside).display().to_string();
        let host = HostFile { root, inside };
        let bytes = match input.direction {
            Direction::Upload => upload(&link, host, &input.guest_path, user, &cx).await?,
            Direction::Download => {
                let most = Most { bytes: most_bytes, quota };
                download(&link, host, &input.guest_path, most, &cx).await?
            }
        };
        Ok(FileTransferred {
            direction: input.direction,
            host_path,
            guest_path: input.guest_path,
            bytes,
        })
    }))
}

/// The path below the transfer directory.
fn inside(root: &Path, path: &str) -> Result<PathBuf, ToolError> {
    let path = Path::new(path);
    let relative = if path.is_absolute() { path.strip_prefix(root).ok() } else { Some(path) };
    let sound = |path: &&Path| {
        path.components().all(|part| matches!(part, Component::Normal(_)))
            && path.file_name().is_some()
    };
    relative.filter(sound).map(Path::to_owned).ok_or_else(|| {
        ToolError::new(
            Layer::Policy,
            codes::OUTSIDE_TRANSFER_DIR,
            "host_path must name a file in the transfer directory",
        )
        .next(format!("use a path relative to {}", root.display()))
    })
}

#[derive(Clone)]
struct HostFile {
    root: PathBuf,
    inside: PathBuf,
}

impl HostFile {
    fn failed(&self, doing: &str, error: Errno) -> ToolError {
        let message = format!("{doing} {}: {error}", self.root.join(&self.inside).display());
        let code = match error {
            Errno::NOENT => codes::HOST_FILE_MISSING,
            Errno::XDEV | Errno::LOOP => codes::OUTSIDE_TRANSFER_DIR,
            Errno::NOSPC | Errno::DQUOT => codes::HOST_DISK_FULL,
            _ => codes::HOST_FILE_FAILED,
        };
        ToolError::new(Layer::Machine, code, message)
    }

    fn open_root(&self) -> Result<OwnedFd, ToolError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&self.root, flags, Mode::empty()).map_err(|e| self.failed("open", e))
    }

    fn open_source(&self) -> Result<(std::fs::File, u64), ToolError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(self.open_root()?, &self.inside, flags, Mode::empty(), beneath)
            .map_err(|e| self.failed("open", e))?;
        let file = std::fs::File::from(file);
        let metadata = file.metadata().map_err(|e| host_io(&e))?;
        if !metadata.is_file() {
            return Err(ToolError::invalid("host_path is not a regular file"));
        }
        Ok((file, metadata.len()))
    }

    /// Creates a temporary file beside the target, and a handle on its folder.
    fn create_target(&self) -> Result<Target, ToolError> {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let parent = self.inside.parent().filter(|p| !p.as_os_str().is_empty());
        let folder = match parent {
            None => self.open_root()?,
            Some(parent) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                openat2(self.open_root()?, parent, flags, Mode::empty(), beneath)
                    .map_err(|e| self.failed("open the folder of", e))?
            }
        };
        let temporary = format!("{}{}", crate::open::TEMPORARY, uuid::Uuid::now_v7().simple());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder, &temporary, flags, Mode::from_raw_mode(0o600))
            .map_err(|e| self.failed("create", e))?;
        Ok(Target { folder, temporary: Some(temporary), file: Some(std::fs::File::from(file)) })
    }
}

/// A file being written. Dropped unfinished, it is removed.
struct Target {
    folder: OwnedFd,
    temporary: Option<String>,
    file: Option<std::fs::File>,
}

impl Target {
    fn finish(mut self, host: &HostFile) -> Result<(), ToolError> {
        let name = host.inside.file_name().unwrap_or_default();
        let temporary = self.temporary.as_deref().unwrap_or_default();
        rustix::fs::renameat(&self.folder, temporary, &self.folder, name)
            .map_err(|e| host.failed("rename to", e))?;
        self.temporary = None;
        // The rename itself must survive a power cut before success is answered.
        let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.folder, ".", readable, Mode::empty())
            .and_then(rustix::fs::fsync)
            .map_err(|e| host.failed("sync the folder of", e))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _gone_already =
                rustix::fs::unlinkat(&self.folder, temporary.as_str(), AtFlags::empty());
        }
    }
}

fn host_io(error: &std::io::Error) -> ToolError {
    let code = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            codes::HOST_DISK_FULL
        }
        _ => codes::HOST_FILE_FAILED,
    };
    ToolError::new(Layer::Machine, code, error.to_string())
}

/// Runs work on a thread that may wait for the host's disk.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ToolError::internal(error.to_string()))?
}

async fn upload(
    link: &Link,
    host: HostFile,
    guest_path: &str,
    user: Option<String>,
    cx: &CallCx,
) -> Result<u64, ToolError> {
    let (file, size_bytes) = beside(move || host.open_source()).await?;
    let source = tokio::fs::File::from_std(file);
    let (told, wait) = (teller(&cx.progress, size_bytes, "uploading"), link_state::wait(cx));
    let write = WriteFile { path: guest_path.to_owned(), mode: None, size_bytes };
    let written = match user {
        // Guests of older daemons know this request.
        None => link.upload(write, size_bytes, source, wait, told).await,
        Some(user) => {
            link.upload(WriteFileAs { write, user }, size_bytes, source, wait, told).await
        }
    };
    let written = written.map_err(link_error)?;
    fault_point!("transfer.after_upload");
    Ok(written.bytes)
}

/// Limits of a download.
struct Most {
    bytes: u64,
    quota: TransferQuota,
}

async fn download(
    link: &Link,
    host: HostFile,
    guest_path: &str,
    most: Most,
    cx: &CallCx,
) -> Result<u64, ToolError> {
    let quota = most.quota.clone();
    let done = receive(link, host, guest_path, most, cx).await;
    if done.is_err() {
        quota.forget();
    }
    done
}

async fn receive(
    link: &Link,
    host: HostFile,
    guest_path: &str,
    Most { bytes: most_bytes, quota }: Most,
    cx: &CallCx,
) -> Result<u64, ToolError> {
    let made = host.clone();
    let mut target = beside(move || made.create_target()).await?;
    let file = target.file.take().ok_or_else(|| ToolError::internal("a target without a file"))?;
    let mut sink = quota.counting(DiskSink::new(file));
    let told = teller(&cx.progress, 0, "downloading");
    // A limit one byte above the maximum tells a file that is too large from one that just fits.
    let limit = Some(most_bytes + 1);
    let done = link
        .download(guest_path, 0, limit, &mut sink, link_state::wait(cx), told)
        .await
        .map_err(|error| match &error {
            LinkError::Sink(sink) if transfer_quota::is_refusal(sink) => quota.full(),
            _ => link_error(error),
        })?;
    if done.sent_bytes > most_bytes {
        let message = format!("{guest_path} is longer than its workspace's disk");
        return Err(ToolError::new(Layer::Result, codes::TOO_LARGE, message)
            .next("pack a sparse file in the workspace first, as with `tar -S`")
            .detail("most_bytes", most_bytes));
    }
    fault_point!("transfer.before_sync");
    sink.sink.sync().await.map_err(|e| host_io(&e))?;
    beside(move || target.finish(&host)).await?;
    fault_point!("transfer.after_download");
    Ok(done.sent_bytes)
}

/// Reports progress for each MiB or so.
fn teller(progress: &Progress, total: u64, what: &'static str) -> impl FnMut(u64) + Send + use<> {
    let progress = progress.clone();
    let mut told = 0;
    #[allow(clippy::cast_precision_loss)]
    move |bytes| {
        if bytes >= told + 1024 * 1024 && progress.wanted() {
            told = bytes;
            let total = (total > 0).then_some(total as f64);
            progress.report(bytes as f64, total, what);
        }
    }
}

#[cfg(test)]
mod tests;
