use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::carrier::{Carrier, UnixCarrier, VhostUserCarrier, VirtioSerialCarrier, VsockCarrier};

/// Address of a guest. Part of a machine's journalled handle.
///
/// `peer_uid` is the uid of the process that called `listen` on the socket: the daemon's own where
/// it binds the socket and passes it on, else QEMU's or the sandbox's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "carrier", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Endpoint {
    /// Guest daemon of the sandbox.
    Unix {
        /// Path of its listening socket.
        path: PathBuf,
        /// Uid of the expected listener.
        peer_uid: u32,
    },
    /// QEMU's chardev socket of the virtio-serial port.
    VirtioSerial {
        /// Path of the chardev's socket.
        path: PathBuf,
        /// Uid of the expected listener.
        peer_uid: u32,
    },
    /// AF_VSOCK of the host kernel.
    Vsock {
        /// Context id of the guest.
        cid: u32,
        /// Guest port.
        port: u32,
    },
    /// Device process of vhost-user-vsock.
    VhostUserVsock {
        /// Path of its socket.
        uds_path: PathBuf,
        /// Guest port.
        port: u32,
        /// Uid of the expected listener.
        peer_uid: u32,
    },
}

impl Endpoint {
    /// Carrier for this endpoint.
    pub fn carrier(&self) -> Arc<dyn Carrier> {
        match self.clone() {
            Self::Unix { path, peer_uid } => Arc::new(UnixCarrier { path, peer_uid }),
            Self::VirtioSerial { path, peer_uid } => {
                Arc::new(VirtioSerialCarrier { path, peer_uid })
            }
            Self::Vsock { cid, port } => Arc::new(VsockCarrier { cid, port }),
            Self::VhostUserVsock { uds_path, port, peer_uid } => {
                Arc::new(VhostUserCarrier { uds_path, port, peer_uid })
            }
        }
    }
}
