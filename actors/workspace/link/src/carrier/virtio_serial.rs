use std::path::PathBuf;

use async_trait::async_trait;

use super::{Carrier, Connection, dial_unix, paced};
use crate::error::AttemptError;

/// Carrier over QEMU's end of a virtio-serial port, a chardev that listens on a Unix socket.
///
/// QEMU accepts the connection whether or not the guest has opened the port, and buffers what is
/// written until it does.
#[derive(Debug)]
pub struct VirtioSerialCarrier {
    /// The chardev's socket.
    pub path: PathBuf,
    /// Uid of the process that called `listen` on it.
    pub peer_uid: u32,
}

#[async_trait]
impl Carrier for VirtioSerialCarrier {
    fn name(&self) -> &'static str {
        "virtio-serial"
    }

    fn has_connections(&self) -> bool {
        false
    }

    async fn connect(&self) -> Result<Connection, AttemptError> {
        let stream = dial_unix(&self.path, self.peer_uid).await?;
        paced::connection(stream).map_err(AttemptError::Connect)
    }
}
