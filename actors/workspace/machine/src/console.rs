//! Console log of a machine: a bounded pair of files.
//!
//! A hostile guest may print for ever. A VM's console is therefore a socket of QEMU that the daemon
//! drains into a [`RollingFile`]; while no daemon is attached QEMU drops what the guest prints. The
//! drain reads at most about 1.3 MB/s, so printing slows only the printing guest.
//!
//! A sandbox's console is a FIFO in its run folder, drained alike: a file of the host could be
//! opened again from inside, by `/proc/1/fd`, and be cut or overwritten. The sandbox holds both of
//! its ends, so no daemon's death ends it, and a write never waits for room: while no daemon is
//! attached the pipe keeps what fits, 64 KiB, and the rest is dropped.
//!
//! Output of a machine's own program goes to a plain file opened for appending; [`trim`] cuts that
//! file back.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::Error;

/// Size at which a log is rotated; one older file is kept.
pub const KEEP_BYTES: u64 = 1024 * 1024;
const READ_BYTES: usize = 64 * 1024;
/// Pause between two reads: lets single characters gather, and bounds the rate.
const PAUSE: Duration = Duration::from_millis(50);
const RETRY: Duration = Duration::from_secs(1);

/// Path of the older half of a log.
pub fn older(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Rolling log of at most [`KEEP_BYTES`] and an older file of the same size.
#[derive(Debug)]
pub struct RollingFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl RollingFile {
    /// Opens a log, continuing an existing one.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, bytes })
    }

    /// Appends; rotates the file first if it would grow beyond [`KEEP_BYTES`].
    pub fn append(&mut self, chunk: &[u8]) -> io::Result<()> {
        if self.bytes + chunk.len() as u64 > KEEP_BYTES {
            std::fs::rename(&self.path, older(&self.path))?;
            *self = Self::open(&self.path)?;
        }
        self.file.write_all(chunk)?;
        self.bytes += chunk.len() as u64;
        Ok(())
    }
}

/// Cuts a log that another process appends to: the last [`KEEP_BYTES`] move to the older file.
/// Output written between the copy and the cut is lost. Returns whether it cut.
pub fn trim(log: &Path) -> io::Result<bool> {
    let length = match std::fs::metadata(log) {
        Ok(meta) => meta.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if length <= KEEP_BYTES {
        return Ok(false);
    }
    let kept = super::folders::tail(log, KEEP_BYTES)?;
    std::fs::write(older(log), kept)?;
    OpenOptions::new().write(true).open(log)?.set_len(0)?;
    Ok(true)
}

/// Copies the console into its log until dropped or until the machine's socket is gone for good
/// (`socket` removed). Connects again after a loss.
pub(super) async fn drain(socket: PathBuf, log: PathBuf) {
    loop {
        match UnixStream::connect(&socket).await {
            Ok(stream) => {
                if let Err(error) = copy(stream, &log).await {
                    tracing::warn!(log = %log.display(), %error, "console log");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Makes a sandbox's console pipe; the descriptor is for the sandbox. Writing to it never waits,
/// and never fails for want of a reader.
pub(super) fn make_pipe(path: &Path) -> Result<OwnedFd, Error> {
    let made = || -> io::Result<OwnedFd> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    };
    made().map_err(Error::io("make the pipe", path))
}

/// Copies a sandbox's console into its log until dropped, or until the sandbox is gone.
pub(super) async fn drain_pipe(path: PathBuf, log: PathBuf) {
    let opened = openable(&path).and_then(|()| pipe::OpenOptions::new().open_receiver(&path));
    let copied = match opened {
        Ok(receiver) => copy(receiver, &log).await,
        Err(error) => Err(error),
    };
    if let Err(error) = copied {
        tracing::warn!(log = %log.display(), %error, "console log");
    }
}

/// Copies what an ended sandbox left in its console.
pub(super) fn drain_rest(path: &Path, log: &Path) -> io::Result<()> {
    openable(path)?;
    let mut rest = Vec::new();
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut pipe = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    match Read::by_ref(&mut pipe).take(KEEP_BYTES).read_to_end(&mut rest) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ if rest.is_empty() => Ok(()),
        _ => RollingFile::open(log)?.append(&rest),
    }
}

/// Makes the pipe readable. The sandbox's root owns it too where the sandbox has no user of its
/// own, and can change the mode.
fn openable(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

async fn copy(mut stream: impl AsyncRead + Unpin, log: &Path) -> io::Result<()> {
    let path = log.to_owned();
    let opened = tokio::task::spawn_blocking(move || RollingFile::open(&path)).await;
    let mut file = opened.map_err(io::Error::other)??;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let append = move || {
            let result = file.append(&buffer[..count]);
            (file, buffer, result)
        };
        let result;
        (file, buffer, result) =
            tokio::task::spawn_blocking(append).await.map_err(io::Error::other)?;
        result?;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Keeps logs that other processes append to within bounds, until dropped.
pub(super) async fn keep_trimmed(logs: Vec<PathBuf>) {
    let mut tick = tokio::time::interval(Duration::from_secs(2));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        for log in logs.clone() {
            let trimmed = tokio::task::spawn_blocking(move || trim(&log)).await;
            if let Ok(Err(error)) = trimmed {
                tracing::warn!(%error, "log could not be trimmed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rolling_file_keeps_the_newest_and_stays_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("console.log");
        let mut file = RollingFile::open(&log).unwrap();
        let chunk = vec![b'x'; READ_BYTES];
        for _ in 0..100 {
            file.append(&chunk).unwrap();
        }
        file.append(b"the end").unwrap();
        let size = |path: &Path| std::fs::metadata(path).unwrap().len();
        assert!(size(&log) <= KEEP_BYTES && size(&older(&log)) <= KEEP_BYTES);
        assert!(std::fs::read(&log).unwrap().ends_with(b"the end"));
        let mut again = RollingFile::open(&log).unwrap();
        again.append(b"!").unwrap();
        assert!(std::fs::read(&log).unwrap().ends_with(b"the end!"));
    }

    #[tokio::test]
    async fn a_pipe_is_never_waited_for_and_kept_for_the_next_reader() {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = (dir.path().join("pipe"), dir.path().join("console.log"));
        let mut end = File::from(make_pipe(&path).unwrap());
        end.write_all(b"before; ").unwrap();
        let drained = tokio::spawn(drain_pipe(path.clone(), log.clone()));
        let said = async |text: &str| {
            while std::fs::read_to_string(&log).unwrap_or_default() != text {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), said("before; ")).await.unwrap();
        drained.abort();
        // Without a reader, more than fits is dropped, not waited for.
        let dropped = loop {
            if let Err(error) = end.write_all(&[b'x'; 4096]) {
                break error;
            }
        };
        assert_eq!(dropped.kind(), io::ErrorKind::WouldBlock);
        // The sandbox's root owned it.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
        drain_rest(&path, &log).unwrap();
        let kept = std::fs::read_to_string(&log).unwrap();
        assert!(kept.starts_with("before; xxx") && kept.len() >= 60_000, "{}", kept.len());
        let mut drained = Box::pin(drain_pipe(path, log));
        let still = tokio::time::timeout(Duration::from_millis(50), &mut drained).await;
        assert!(still.is_err(), "it waits for more");
        drop(end);
        tokio::time::timeout(Duration::from_secs(20), drained).await.expect("nobody writes now");
    }

    #[test]
    fn trimming_leaves_the_appending_process_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("stderr.log");
        assert!(!trim(&log).unwrap());
        let mut writer = OpenOptions::new().create(true).append(true).open(&log).unwrap();
        writer.write_all(&vec![b'x'; KEEP_BYTES as usize + 10]).unwrap();
        writer.write_all(b"tail").unwrap();
        assert!(trim(&log).unwrap());
        writer.write_all(b"after").unwrap();
        assert_eq!(std::fs::read(&log).unwrap(), b"after");
        assert!(std::fs::read(older(&log)).unwrap().ends_with(b"xtail"));
    }
}
