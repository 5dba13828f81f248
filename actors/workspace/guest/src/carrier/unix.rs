//! A listening Unix socket, inherited or bound at a path.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;

use tokio::net::UnixListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::GuestCarrier;
use crate::session::StreamKind;

/// Accepts processes of the allowed users.
#[derive(Debug)]
pub struct Unix {
    listener: UnixListener,
    peer_uids: Vec<u32>,
}

impl Unix {
    /// Takes a socket that somebody else bound and listens on.
    ///
    /// # Errors
    /// When the descriptor is no such socket. Must be called within the runtime.
    pub fn inherited(socket: OwnedFd, peer_uids: Vec<u32>) -> io::Result<Self> {
        let listener = StdListener::from(socket);
        listener.local_addr()?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, peer_uids })
    }

    /// Binds `path`.
    ///
    /// # Errors
    /// As bind(2). Must be called within the runtime.
    pub fn bind(path: &Path, peer_uids: Vec<u32>) -> io::Result<Self> {
        Ok(Self { listener: UnixListener::bind(path)?, peer_uids })
    }
}

impl GuestCarrier for Unix {
    const NAME: &'static str = "unix";
    const STREAM: StreamKind = StreamKind::Connection;
    type Reader = OwnedReadHalf;
    type Writer = OwnedWriteHalf;

    async fn accept(&mut self) -> io::Result<(Self::Reader, Self::Writer)> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let uid = stream.peer_cred()?.uid();
            if self.peer_uids.contains(&uid) {
                return Ok(stream.into_split());
            }
            crate::say!("unix: refused a process of user {uid}");
        }
    }
}
