use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use tokio::net::UnixListener;

use super::FakeGuest;
use crate::{
    AttemptError,
    carrier::{Carrier, Connection},
};

/// Carrier that reaches a [`FakeGuest`] through memory.
pub struct FakeCarrier {
    guest: FakeGuest,
    has_connections: bool,
    not_yet: AtomicU32,
    dials: Arc<AtomicU32>,
}

impl FakeCarrier {
    pub(super) fn new(guest: FakeGuest) -> Self {
        Self { guest, has_connections: true, not_yet: AtomicU32::new(0), dials: Arc::default() }
    }

    /// Refuses the first `dials`, as before the guest is up.
    pub fn refusing_first(mut self, dials: u32) -> Self {
        self.not_yet = AtomicU32::new(dials);
        self
    }

    /// Behaves as a stream without connections (virtio-serial).
    pub fn without_connections(mut self) -> Self {
        self.has_connections = false;
        self
    }

    /// Counts the dials.
    pub fn dials(&self) -> Arc<AtomicU32> {
        self.dials.clone()
    }
}

#[async_trait]
impl Carrier for FakeCarrier {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn has_connections(&self) -> bool {
        self.has_connections
    }

    async fn connect(&self) -> Result<Connection, AttemptError> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        let early = |left: u32| left.checked_sub(1);
        if self.not_yet.fetch_update(Ordering::SeqCst, Ordering::SeqCst, early).is_ok() {
            return Err(AttemptError::Connect(io::ErrorKind::ConnectionRefused.into()));
        }
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        tokio::spawn(self.guest.clone().serve(theirs));
        let (reader, writer) = tokio::io::split(ours);
        Ok(Connection { reader: Box::new(reader), writer: Box::new(writer) })
    }
}

impl FakeGuest {
    /// Serves every connection to a Unix socket until the returned task is aborted.
    ///
    /// # Errors
    /// Fails when the socket cannot be bound.
    pub fn listen(self, path: &Path) -> io::Result<tokio::task::JoinHandle<()>> {
        let listener = UnixListener::bind(path)?;
        Ok(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(self.clone().serve(stream));
            }
        }))
    }
}
