use std::path::PathBuf;

use async_trait::async_trait;

use super::{Carrier, Connection, dial_unix};
use crate::error::AttemptError;

/// Carrier to the sandbox's guest daemon, which listens on a Unix socket.
#[derive(Debug)]
pub struct UnixCarrier {
    /// The listening socket.
    pub path: PathBuf,
    /// Uid of the process that called `listen` on it.
    pub peer_uid: u32,
}

#[async_trait]
impl Carrier for UnixCarrier {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn has_connections(&self) -> bool {
        true
    }

    async fn connect(&self) -> Result<Connection, AttemptError> {
        Ok(dial_unix(&self.path, self.peer_uid).await?.into())
    }
}
