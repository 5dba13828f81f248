//! Where the link of a machine leads.

use crate::{
    driver::{self, MachineHandle},
    link::Endpoint,
};

/// The link's endpoint of a running machine.
pub(crate) fn of(handle: &MachineHandle) -> Endpoint {
    match handle.endpoint.clone() {
        driver::Endpoint::Unix { path, peer_uid } => Endpoint::Unix { path, peer_uid },
        driver::Endpoint::VirtioSerial { path, peer_uid } => {
            Endpoint::VirtioSerial { path, peer_uid }
        }
        driver::Endpoint::Vsock { cid, port } => Endpoint::Vsock { cid, port },
        driver::Endpoint::VhostUserVsock { uds_path, port, peer_uid } => {
            Endpoint::VhostUserVsock { uds_path, port, peer_uid }
        }
    }
}
