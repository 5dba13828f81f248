//! Files between the host's transfer directory and the guest.
//!
//! The host side is opened beneath a handle on the directory (openat2 with
//! `RESOLVE_BENEATH`), so that neither `..` nor a symlink leads out of it, also
//! not one that is put there between a check and its use.

mod sink;

use std::{
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use hivekeep_kernel::{CallCx, Layer, Progress, Reply, ToolError, fault_point};
use rustix::{
    fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

use self::sink::DiskSink;
use super::{
    Workspace,
    line::{self, link_error},
};
use crate::{
    link::Link,
    tools::files::{Direction, FileTransfer, FileTransferred},
};

impl Workspace {
    /// `file_transfer`.
    ///
    /// # Errors
    /// When the workspace does not run or the host's path leads astray.
    pub(crate) fn file_transfer(
        &mut self,
        cx: &CallCx,
        input: FileTransfer,
    ) -> Result<Reply<FileTransferred>, ToolError> {
        let root = self.desk.shared.folders.transfers.clone();
        let inside = inside(&root, &input.host_path)?;
        let (link, cx) = (self.guest(cx)?, cx.clone());
        Ok(Reply::later(async move {
            let link = link.await?;
            let host = HostFile { root, inside };
            let bytes = match input.direction {
                Direction::Upload => upload(&link, &host, &input.guest_path, &cx).await?,
                Direction::Download => download(&link, &host, &input.guest_path, &cx).await?,
            };
            Ok(FileTransferred {
                direction: input.direction,
                host_path: host.root.join(&host.inside).display().to_string(),
                guest_path: input.guest_path,
                bytes,
            })
        }))
    }
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
            "outside_transfer_dir",
            "host_path must name a file in the transfer directory",
        )
        .next(format!("use a path relative to {}", root.display()))
    })
}

struct HostFile {
    root: PathBuf,
    inside: PathBuf,
}

impl HostFile {
    fn failed(&self, doing: &str, error: Errno) -> ToolError {
        let message = format!("{doing} {}: {error}", self.root.join(&self.inside).display());
        let code = match error {
            Errno::NOENT => "host_file_missing",
            Errno::XDEV | Errno::LOOP => "outside_transfer_dir",
            Errno::NOSPC | Errno::DQUOT => "host_disk_full",
            _ => "host_file_failed",
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
            return Err(ToolError::invalid("host_path is no regular file"));
        }
        Ok((file, metadata.len()))
    }

    /// A new unnamed-until-finished file beside the target, and the handle on its folder.
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
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => "host_disk_full",
        _ => "host_file_failed",
    };
    ToolError::new(Layer::Machine, code, error.to_string())
}

async fn upload(
    link: &Link,
    host: &HostFile,
    guest_path: &str,
    cx: &CallCx,
) -> Result<u64, ToolError> {
    let (file, size) = host.open_source()?;
    let source = tokio::fs::File::from_std(file);
    let told = teller(&cx.progress, size, "uploading");
    let written = link
        .upload(guest_path, None, size, source, line::wait(cx), told)
        .await
        .map_err(link_error)?;
    fault_point!("transfer.after_upload");
    Ok(written.bytes)
}

async fn download(
    link: &Link,
    host: &HostFile,
    guest_path: &str,
    cx: &CallCx,
) -> Result<u64, ToolError> {
    let mut target = host.create_target()?;
    let file = target.file.take().ok_or_else(|| ToolError::internal("a target without a file"))?;
    let mut sink = DiskSink::new(file);
    let told = teller(&cx.progress, 0, "downloading");
    let done = link
        .download(guest_path, 0, None, &mut sink, line::wait(cx), told)
        .await
        .map_err(link_error)?;
    fault_point!("transfer.before_sync");
    sink.sync().await.map_err(|e| host_io(&e))?;
    target.finish(host)?;
    fault_point!("transfer.after_download");
    Ok(done.sent_bytes)
}

/// Tells progress for each MiB or so.
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
mod tests {
    use super::*;

    fn host(root: &Path, inside: &str) -> HostFile {
        HostFile { root: root.to_owned(), inside: inside.into() }
    }

    #[test]
    fn paths_stay_inside() {
        let root = Path::new("/srv/transfers");
        for good in ["a", "a/b.txt", "/srv/transfers/a"] {
            assert!(inside(root, good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/",
            "..",
            "a/../b",
            "../x",
            "/etc/passwd",
            "/srv/transfers",
            "/srv/transfers/../x",
        ] {
            assert!(inside(root, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn symlinks_lead_nowhere() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().join("root");
        std::fs::create_dir(&root).expect("made");
        std::fs::write(dir.path().join("secret"), "x").expect("written");
        std::os::unix::fs::symlink("../secret", root.join("leak")).expect("linked");
        std::os::unix::fs::symlink("..", root.join("up")).expect("linked");
        let refused = host(&root, "leak").open_source().expect_err("followed");
        assert_eq!(refused.code, "outside_transfer_dir");
        assert!(host(&root, "up/secret").open_source().is_err());
        assert!(host(&root, "up/new").create_target().is_err());
    }

    #[test]
    fn an_unfinished_download_leaves_nothing_and_a_finished_one_replaces_a_link() {
        let dir = tempfile::tempdir().expect("a folder");
        let outside = dir.path().join("outside");
        std::fs::write(&outside, "untouched").expect("written");
        let root = dir.path().join("root");
        std::fs::create_dir(&root).expect("made");
        drop(host(&root, "file").create_target().expect("created"));
        assert_eq!(std::fs::read_dir(&root).expect("listed").count(), 0);
        std::os::unix::fs::symlink("../outside", root.join("file")).expect("linked");
        let file = host(&root, "file");
        file.create_target().expect("created").finish(&file).expect("finished");
        assert_eq!(std::fs::read_to_string(outside).expect("read"), "untouched");
        assert!(root.join("file").symlink_metadata().expect("there").is_file());
    }

    #[test]
    fn a_fifo_cannot_hang_an_upload() {
        let dir = tempfile::tempdir().expect("a folder");
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .expect("made");
        assert!(host(dir.path(), "fifo").open_source().is_err());
    }
}
