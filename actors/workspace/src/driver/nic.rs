//! A machine's network interface.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use hivekeep_kernel::ports::{Attachment, PortForward};

/// What the machine has and where its cable ends.
#[derive(Debug, Clone)]
pub struct Nic {
    /// What the device says its address is. A guest from a memory image keeps the one it knows
    /// until it is told.
    pub mac: [u8; 6],
    /// The host's end.
    pub end: NicEnd,
}

/// The host's end of a machine's cable.
#[derive(Debug, Clone)]
pub enum NicEnd {
    /// None: what the guest sends goes nowhere.
    Unplugged,
    /// A queue of a tap: non-blocking, with a virtio header before each frame.
    Tap(Arc<OwnedFd>),
    /// QEMU's own network stack, which needs no rights. It plays the gateway of this place and
    /// lets nothing through but the forwards.
    User {
        /// As the guest is told.
        attachment: Attachment,
        /// Ports of the host that lead to the guest.
        forwards: Vec<PortForward>,
    },
}
