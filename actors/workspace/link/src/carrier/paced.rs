//! Interrupt coalescing for a Unix socket: the socket is not polled while much data flows.
//!
//! QEMU writes what the guest sends in pieces of at most 32 KiB, in the thread that runs the
//! guest's CPU. A polled socket wakes the reader for each piece, and a wake-up costs that thread as
//! much as the piece itself. So while much flows the socket is left alone for moments, in which a
//! few pieces gather: fewer than its buffer holds, so that QEMU does not wait either.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, sendmsg, shutdown};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::task::coop::poll_proceed;

use super::{Connection, register};

/// Size of a whole piece of QEMU's: when this much arrives, more is on its way.
const MUCH_BYTES: usize = 32 * 1024;
/// Length of the first pause.
const PAUSE: Duration = Duration::from_micros(100);
/// Bounds of a pause, which is made shorter or longer as it gathered much or little.
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_micros(400);
/// Amount gathered below which a pause was too short.
const LITTLE_BYTES: usize = 80 * 1024;
/// Amount gathered above which the usual socket buffer of some 200 KiB is nearly full.
const NEARLY_FULL_BYTES: usize = 144 * 1024;
/// Maximum number of bytes received at once.
const AT_ONCE_BYTES: usize = 256 * 1024;

/// Splits the stream into halves that are polled separately.
pub(super) fn connection(stream: UnixStream) -> io::Result<Connection> {
    let receiving = OwnedFd::from(stream.into_std()?);
    let sending = Arc::new(receiving.try_clone()?);
    let watched = register(sending.clone(), Interest::WRITABLE)?;
    let timer = Arc::new(timerfd_create(
        TimerfdClockId::Monotonic,
        TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
    )?);
    let reader = Receiving {
        socket: Arc::new(receiving),
        watched: None,
        timer: register(timer, Interest::READABLE)?,
        pausing: false,
        gathered: 0,
        pause: PAUSE,
    };
    Ok(Connection { reader: Box::new(reader), writer: Box::new(Sending { watched }) })
}

struct Receiving {
    socket: Arc<OwnedFd>,
    /// Registration with the runtime while little arrives.
    watched: Option<AsyncFd<Arc<OwnedFd>>>,
    timer: AsyncFd<Arc<OwnedFd>>,
    /// True while the timer runs.
    pausing: bool,
    /// Number of bytes received since the socket was empty.
    gathered: usize,
    /// Length of the last pause.
    pause: Duration,
}

impl Receiving {
    /// Waits until it is worth reading from the socket, which was empty.
    fn poll_worth(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.pausing && self.gathered >= MUCH_BYTES {
            self.begin_pause()?;
        }
        if self.pausing {
            ready!(self.timer.poll_read_ready(cx))?.clear_ready();
            self.pausing = false;
        } else if let Some(watched) = &self.watched {
            ready!(watched.poll_read_ready(cx))?.clear_ready();
            self.gathered = 0;
        } else {
            // Data that arrived before counts as an event.
            let watched = register(self.socket.clone(), Interest::READABLE)?;
            self.watched = Some(watched);
            self.pause = PAUSE;
        }
        Poll::Ready(Ok(()))
    }

    fn begin_pause(&mut self) -> io::Result<()> {
        // A first pause follows data of the polled socket, piece by piece.
        if self.watched.take().is_none() {
            self.pause = match self.gathered {
                ..LITTLE_BYTES => (self.pause * 2).min(LONGEST),
                NEARLY_FULL_BYTES.. => (self.pause / 2).max(SHORTEST),
                _ => self.pause,
            };
        }
        self.gathered = 0;
        let once = Timespec { tv_sec: 0, tv_nsec: self.pause.subsec_nanos().into() };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: never, it_value: once };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &setting)?;
        self.pausing = true;
        Ok(())
    }
}

impl AsyncRead for Receiving {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Yields, so that a guest that never stops sending does not keep this thread busy.
        let turn = ready!(poll_proceed(cx));
        loop {
            if self.pausing {
                ready!(self.poll_worth(cx))?;
            }
            let most = buf.remaining().min(AT_ONCE_BYTES);
            match recv(&self.socket, buf.initialize_unfilled_to(most), RecvFlags::DONTWAIT) {
                Ok((_, len)) => {
                    buf.advance(len);
                    self.gathered += len;
                    turn.made_progress();
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => ready!(self.poll_worth(cx))?,
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

struct Sending {
    watched: AsyncFd<Arc<OwnedFd>>,
}

impl Sending {
    fn poll(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.watched.poll_write_ready(cx))?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(self.watched.get_ref(), parts, &mut Default::default(), flags) {
                Ok(len) => return Poll::Ready(Ok(len)),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl AsyncWrite for Sending {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(self.watched.get_ref(), Shutdown::Write)?))
    }
}

impl Drop for Sending {
    /// Shuts the stream down, so that the peer sees the end at once, although the other half is
    /// open.
    fn drop(&mut self) {
        // A peer that is gone needs no notice.
        let _ = shutdown(self.watched.get_ref(), Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Sends much, then little when the socket is polled again, then the end.
    #[tokio::test]
    async fn everything_arrives_in_order_whatever_flows() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let Connection { mut reader, writer: _writer } = connection(ours).expect("halves");
        let much: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
        let expected = much.clone();
        let (had, wait) = tokio::sync::oneshot::channel();
        let sending = tokio::spawn(async move {
            theirs.write_all(&much).await.expect("taken");
            wait.await.expect("received");
            theirs.write_all(b"little").await.expect("taken");
            theirs
        });
        let mut received = vec![0; expected.len()];
        reader.read_exact(&mut received).await.expect("all of it");
        assert!(received == expected);
        let mut little = [0; 6];
        {
            // Waits through the pauses until the socket is polled.
            let mut waiting = std::pin::pin!(reader.read_exact(&mut little));
            let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting);
            assert!(early.await.is_err(), "nothing was sent");
            had.send(()).expect("somebody waits");
            waiting.await.expect("it came");
        }
        assert_eq!(&little, b"little");
        drop(sending.await.expect("no panic"));
        assert_eq!(reader.read(&mut little).await.expect("the end"), 0);
    }

    #[tokio::test]
    async fn a_full_socket_is_waited_for_and_a_dropped_half_is_the_end() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let Connection { reader: _reader, mut writer } = connection(ours).expect("halves");
        let much: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
        let expected = much.clone();
        let sending = tokio::spawn(async move {
            assert!(writer.is_write_vectored());
            writer.write_all(&much).await.expect("taken");
        });
        let mut received = Vec::new();
        theirs.read_to_end(&mut received).await.expect("all of it");
        assert!(received == expected);
        sending.await.expect("no panic");
    }
}
