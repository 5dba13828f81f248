use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::carrier::{Carrier, UnixCarrier, VhostUserCarrier, VirtioSerialCarrier, VsockCarrier};

/// Where a guest is reached. Part of a machine's journalled handle.
///
/// `peer_uid` is the uid of whoever called `listen` on the socket: the daemon's
/// own where it binds the socket and passes it on, else QEMU's or the sandbox's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "carrier", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Endpoint {
    /// The sandbox's guest daemon.
    Unix {
        /// Its listening socket.
        path: PathBuf,
        /// Expected listener.
        peer_uid: u32,
    },
    /// QEMU's chardev socket of the virtio-serial port.
    VirtioSerial {
        /// The chardev's socket.
        path: PathBuf,
        /// Expected listener.
        peer_uid: u32,
    },
    /// The host kernel's AF_VSOCK.
    Vsock {
        /// The guest's context id.
        cid: u32,
        /// Guest port.
        port: u32,
    },
    /// A vhost-user-vsock device process.
    VhostUserVsock {
        /// Its socket.
        uds_path: PathBuf,
        /// Guest port.
        port: u32,
        /// Expected listener.
        peer_uid: u32,
    },
}

impl Endpoint {
    /// The carrier that serves this endpoint.
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
