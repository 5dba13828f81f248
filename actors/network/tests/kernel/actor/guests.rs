//! The one fake of guests behind the link.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use hivekeep_kernel::{CallCx, ToolError, WorkspaceId};
use hivekeep_ports::{ByteStream, WorkspacePorts};
use tokio::io::AsyncWriteExt;

/// Guests that greet whoever comes through a forward. Who wakes them is counted, and refused unless they may wake.
#[derive(Default)]
pub(super) struct Guests {
    asked: AtomicUsize,
    /// A wake goes on until nobody waits for it.
    pub(super) wake: AtomicBool,
}

impl Guests {
    /// How often one was to be woken.
    pub(super) fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

#[async_trait::async_trait]
impl WorkspacePorts for Guests {
    async fn dial(
        &self,
        _: &CallCx,
        _: WorkspaceId,
        _: u16,
    ) -> Result<Box<dyn ByteStream>, ToolError> {
        Err(ToolError::internal("forwards have no caller"))
    }

    async fn dial_forward(
        &self,
        id: WorkspaceId,
        port: u16,
        _: Duration,
    ) -> Result<Box<dyn ByteStream>, ToolError> {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        theirs.write_all(format!("{id} {port}").as_bytes()).await.unwrap();
        Ok(Box::new(ours))
    }

    async fn wake(&self, _: WorkspaceId, _: Duration) -> Result<(), ToolError> {
        self.asked.fetch_add(1, SeqCst);
        match self.wake.load(SeqCst) {
            true => std::future::pending().await,
            false => Err(ToolError::internal("it sleeps on")),
        }
    }
}
