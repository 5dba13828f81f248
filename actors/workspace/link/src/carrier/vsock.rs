use async_trait::async_trait;
use tokio_vsock::{VsockAddr, VsockStream};

use super::{Carrier, Connection};
use crate::error::AttemptError;

/// Carrier over the host kernel's AF_VSOCK. The peer is the CID that was dialled: the kernel routes
/// by it, so nothing else is checked.
#[derive(Debug)]
pub struct VsockCarrier {
    /// The guest's context id.
    pub cid: u32,
    /// Port that the guest listens on.
    pub port: u32,
}

#[async_trait]
impl Carrier for VsockCarrier {
    fn name(&self) -> &'static str {
        "vsock"
    }

    fn has_connections(&self) -> bool {
        true
    }

    async fn connect(&self) -> Result<Connection, AttemptError> {
        let stream = VsockStream::connect(VsockAddr::new(self.cid, self.port))
            .await
            .map_err(AttemptError::Connect)?;
        let (reader, writer) = stream.into_split();
        Ok(Connection { reader: Box::new(reader), writer: Box::new(writer) })
    }
}
