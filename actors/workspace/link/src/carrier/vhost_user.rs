use std::path::PathBuf;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Carrier, Connection, dial_unix};
use crate::error::AttemptError;

/// Maximum length of the answer line: `OK ` and a port, with room to spare.
const MAX_LINE_BYTES: usize = 64;

/// Carrier over a vhost-user-vsock device process, which connects to the guest's AF_VSOCK ports for
/// clients that write `CONNECT port` to its Unix socket.
///
/// The device closes the socket without a reply for a closed port; for a guest that is not up yet
/// it resets, or does nothing at all.
#[derive(Debug)]
pub struct VhostUserCarrier {
    /// The device process's socket.
    pub uds_path: PathBuf,
    /// Guest port.
    pub port: u32,
    /// Uid of the process that called `listen` on the socket.
    pub peer_uid: u32,
}

#[async_trait]
impl Carrier for VhostUserCarrier {
    fn name(&self) -> &'static str {
        "vhost-user-vsock"
    }

    fn has_connections(&self) -> bool {
        true
    }

    async fn connect(&self) -> Result<Connection, AttemptError> {
        let mut stream = dial_unix(&self.uds_path, self.peer_uid).await?;
        let order = format!("CONNECT {}\n", self.port);
        stream.write_all(order.as_bytes()).await.map_err(AttemptError::Connect)?;
        // Read byte by byte: anything after the line already belongs to the guest.
        let mut line = Vec::with_capacity(MAX_LINE_BYTES);
        loop {
            let mut byte = [0];
            if stream.read(&mut byte).await.map_err(AttemptError::Connect)? == 0 {
                return Err(AttemptError::Closed);
            }
            if byte == *b"\n" {
                break;
            }
            if line.len() == MAX_LINE_BYTES {
                return Err(AttemptError::NotAGuest("the vsock device sent an endless line"));
            }
            line.push(byte[0]);
        }
        if line != b"OK" && !line.starts_with(b"OK ") {
            return Err(AttemptError::NotAGuest("the vsock device did not answer OK"));
        }
        Ok(stream.into())
    }
}
