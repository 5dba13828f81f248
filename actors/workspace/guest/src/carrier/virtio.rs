//! A virtio-serial port.
//!
//! The port is opened once: closing and opening it again can lose a wake-up in
//! QEMU and stall the host's bytes. While the host is away the port polls as hung
//! up and a read gives 0, so that is waited out by looking now and then. An
//! `AsyncFd` remembers a hang-up for ever, so each connection gets a new one.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::GuestCarrier;
use crate::session::StreamKind;
use crate::sys::descriptors;

/// The port's name, as the host gives it to its device.
pub const PORT_NAME: &str = "hivekeep.0";
/// Maximum bytes of one read of the port: Linux's driver receives into single pages.
const DRIVER_BUFFER_BYTES: usize = 4096;
const AWAY_POLL: Duration = Duration::from_millis(200);
/// Number of quicker polls for the host right after the boot and after the host has gone: a daemon that
/// restarts is away for a moment, as is the host of a fork.
const EAGER_POLLS: u32 = 100;
const EAGER_POLL: Duration = Duration::from_millis(10);

/// The one port of this guest.
#[derive(Debug)]
pub struct Virtio {
    port: Arc<File>,
    eager: u32,
}

impl Virtio {
    /// Finds and opens the port; waits for its driver at most `wait`.
    ///
    /// # Errors
    /// When there is no such port by then.
    pub async fn open(wait: Duration) -> io::Result<Self> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            if let Some(path) = find(Path::new("/sys/class/virtio-ports")) {
                let mut options = File::options();
                options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
                match options.open(&path) {
                    Ok(port) => return Ok(Self { port: Arc::new(port), eager: EAGER_POLLS }),
                    // The name can be there before the device node is.
                    Err(error) if tokio::time::Instant::now() > deadline => return Err(error),
                    Err(_) => {}
                }
            } else if tokio::time::Instant::now() > deadline {
                let message = format!("no virtio port is named {PORT_NAME}");
                return Err(io::Error::new(io::ErrorKind::NotFound, message));
            }
            tokio::time::sleep(EAGER_POLL).await;
        }
    }
}

fn host_is_there(port: &File) -> io::Result<bool> {
    let mut fds = [PollFd::new(port, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now))?;
    Ok(!fds[0].revents().contains(PollFlags::HUP))
}

fn find(class: &Path) -> Option<PathBuf> {
    std::fs::read_dir(class).ok()?.flatten().find_map(|port| {
        let name = std::fs::read_to_string(port.path().join("name")).ok()?;
        (name.trim_end() == PORT_NAME).then(|| Path::new("/dev").join(port.file_name()))
    })
}

impl GuestCarrier for Virtio {
    const NAME: &'static str = "virtio-serial";
    const STREAM: StreamKind = StreamKind::Endless;
    type Reader = PortHalf;
    type Writer = PortHalf;

    async fn accept(&mut self) -> io::Result<(Self::Reader, Self::Writer)> {
        while !host_is_there(&self.port)? {
            self.eager = self.eager.saturating_sub(1);
            let pause = if self.eager > 0 { EAGER_POLL } else { AWAY_POLL };
            tokio::time::sleep(pause).await;
        }
        self.eager = EAGER_POLLS;
        Ok((
            PortHalf::of(&self.port, Interest::READABLE)?,
            PortHalf::of(&self.port, Interest::WRITABLE)?,
        ))
    }
}

/// Direction of the port, during one connection of the host. Each direction has its own descriptor, so that
/// it can be watched anew without the other.
#[derive(Debug)]
pub struct PortHalf {
    port: Arc<File>,
    /// The driver interrupts for each buffer it has sent; that is not to look like
    /// something to read.
    interest: Interest,
    watched: Option<AsyncFd<Arc<File>>>,
}

impl PortHalf {
    fn of(port: &File, interest: Interest) -> io::Result<Self> {
        let port = Arc::new(port.try_clone()?);
        let watched = Some(descriptors::shared(port.clone(), interest)?);
        Ok(Self { port, interest, watched })
    }

    fn watched(&self) -> io::Result<&AsyncFd<Arc<File>>> {
        self.watched.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// The watcher remembers a hang-up. Returns whether the host is gone indeed;
    /// if it came back meanwhile, the port is watched anew.
    fn is_hung_up(&mut self) -> io::Result<bool> {
        if !host_is_there(&self.port)? {
            return Ok(true);
        }
        self.watched = None;
        self.watched = Some(descriptors::shared(self.port.clone(), self.interest)?);
        Ok(false)
    }
}

impl AsyncRead for PortHalf {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.watched()?.poll_read_ready(cx))?;
            match read_all_there_is(&self.port, buf) {
                Err(rustix::io::Errno::AGAIN) if !ready.ready().is_read_closed() => {
                    ready.clear_ready();
                }
                Err(rustix::io::Errno::AGAIN) => {
                    if self.is_hung_up()? {
                        return Poll::Ready(Ok(()));
                    }
                }
                outcome => return Poll::Ready(Ok(outcome?)),
            }
        }
    }
}

/// Reads until the buffer is full or the port is empty: a wake-up for each of the
/// driver's pages would cost more than they do. Fails only before the first byte.
fn read_all_there_is(port: &File, buf: &mut ReadBuf<'_>) -> Result<(), rustix::io::Errno> {
    let before = buf.filled().len();
    while buf.remaining() > 0 {
        let part = buf.remaining().min(DRIVER_BUFFER_BYTES);
        match rustix::io::read(port, buf.initialize_unfilled_to(part)) {
            Ok(0) => break,
            Ok(n) => buf.advance(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) if buf.filled().len() > before => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl AsyncWrite for PortHalf {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.watched()?.poll_write_ready(cx))?;
            match rustix::io::write(&self.port, bytes) {
                Ok(n) => return Poll::Ready(Ok(n)),
                Err(rustix::io::Errno::AGAIN) if !ready.ready().is_write_closed() => {
                    ready.clear_ready();
                }
                Err(rustix::io::Errno::AGAIN) => {
                    if self.is_hung_up()? {
                        return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_found_by_its_name() {
        let class = tempfile::tempdir().expect("a folder");
        for (port, name) in [("vport0p1", "org.other.0\n"), ("vport0p2", "hivekeep.0\n")] {
            std::fs::create_dir(class.path().join(port)).expect("a port");
            std::fs::write(class.path().join(port).join("name"), name).expect("its name");
        }
        assert_eq!(find(class.path()), Some(PathBuf::from("/dev/vport0p2")));
        assert_eq!(find(Path::new("/nowhere")), None);
    }
}
