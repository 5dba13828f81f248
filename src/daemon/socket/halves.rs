//! The two directions of a client's connection.
//!
//! tokio's own halves share one registration for both directions. The kernel
//! then tells of room for writing each time the client reads an answer: for
//! every call the daemon is woken once for nothing, just when the client wants
//! the processor. Here reading is registered for reading alone, and writing
//! only while the client's side is full.
#![allow(unsafe_code)]

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd};

/// Splits a connection.
///
/// # Errors
/// When it cannot be registered with the runtime.
pub(super) fn split(stream: tokio::net::UnixStream) -> io::Result<(ReadHalf, WriteHalf)> {
    // `into_std` leaves the socket non-blocking.
    let stream = Arc::new(stream.into_std()?);
    let reader = register(stream.clone(), Interest::READABLE)?;
    Ok((ReadHalf(reader), WriteHalf { stream, room: None }))
}

fn register(stream: Arc<UnixStream>, interest: Interest) -> io::Result<AsyncFd<Arc<UnixStream>>> {
    // SAFETY: a UnixStream has one descriptor for all its life, open until it is
    // dropped; the AsyncFd owns a share of it and gives it out by reference only.
    Ok(unsafe { AsyncFd::register_with_interest(stream, interest) }?)
}

/// The reading half of a client's connection.
#[derive(Debug)]
pub(super) struct ReadHalf(AsyncFd<Arc<UnixStream>>);

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let free = buffer.initialize_unfilled();
            let size = free.len();
            match (&mut &**self.0.get_ref()).read(free) {
                Ok(read) => {
                    // A short read has emptied the socket; the kernel reports later bytes anew.
                    if 0 < read && read < size {
                        ready.clear_ready();
                    }
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// The writing half of a client's connection. Dropping it tells the client that no more follows.
#[derive(Debug)]
pub(super) struct WriteHalf {
    stream: Arc<UnixStream>,
    /// Readiness for writing, on a descriptor of its own because the reader's is registered already; `None`
    /// while there is room.
    room: Option<AsyncFd<Arc<UnixStream>>>,
}

impl AsyncWrite for WriteHalf {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match (&mut &*self.stream).write(bytes) {
                Ok(written) => {
                    self.room = None;
                    return Poll::Ready(Ok(written));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Poll::Ready(Err(error)),
            }
            match &self.room {
                // There was room between the attempt and this, or there is none:
                // the next attempt tells.
                Some(room) => ready!(room.poll_write_ready(context))?.clear_ready(),
                None => {
                    let again = self.stream.try_clone()?;
                    self.room = Some(register(again.into(), Interest::WRITABLE)?);
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.shutdown(Shutdown::Write))
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        let _gone_already = self.stream.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::timeout,
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn pair() -> (ReadHalf, WriteHalf, tokio::net::UnixStream) {
        let (ours, theirs) = tokio::net::UnixStream::pair().expect("a pair of sockets");
        let (reader, writer) = split(ours).expect("registers");
        (reader, writer, theirs)
    }

    #[tokio::test]
    async fn more_than_the_socket_holds_goes_through_both_ways() {
        let (mut reader, mut writer, theirs) = pair();
        let (mut back, mut forth) = theirs.into_split();
        let bytes: Vec<u8> = (0..4_000_000_u32).map(|n| (n / 7) as u8).collect();
        let echo = tokio::spawn(async move { tokio::io::copy(&mut back, &mut forth).await });
        let sent = bytes.clone();
        let send = tokio::spawn(async move {
            writer.write_all(&sent).await.expect("writes");
            writer.shutdown().await.expect("shuts down");
            assert!(writer.room.is_none(), "registered only while there is no room");
        });
        let mut got = Vec::new();
        timeout(LONG, reader.read_to_end(&mut got)).await.expect("in time").expect("reads");
        assert!(got == bytes);
        send.await.expect("sends");
        assert_eq!(echo.await.expect("runs").expect("echoes"), 4_000_000);
    }

    #[tokio::test]
    async fn a_full_socket_waits_and_goes_on_when_the_peer_reads() {
        let (_reader, mut writer, mut theirs) = pair();
        let chunk = vec![7; 64 * 1024];
        let mut total = 0;
        while let Ok(written) = timeout(Duration::from_millis(20), writer.write(&chunk)).await {
            total += written.expect("writes");
        }
        assert!(writer.room.is_some());
        let read = tokio::spawn(async move {
            let mut got = vec![0; total + 1];
            theirs.read_exact(&mut got).await.expect("reads");
        });
        timeout(LONG, writer.write_all(&chunk)).await.expect("in time").expect("writes");
        read.await.expect("reads all");
    }

    #[tokio::test]
    async fn either_end_hears_of_the_other_ones_end() {
        let (mut reader, writer, mut theirs) = pair();
        drop(writer);
        let mut byte = [0];
        assert_eq!(
            timeout(LONG, theirs.read(&mut byte)).await.expect("in time").expect("reads"),
            0
        );
        // The other direction is open still.
        theirs.write_all(b"x").await.expect("writes");
        drop(theirs);
        let mut rest = Vec::new();
        timeout(LONG, reader.read_to_end(&mut rest)).await.expect("in time").expect("reads");
        assert_eq!(rest, b"x");
    }
}
