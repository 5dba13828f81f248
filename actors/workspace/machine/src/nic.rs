//! A machine's network interface.

use std::net::Ipv4Addr;
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
        /// As the guest is told. Its network has at least eight addresses: QEMU takes one for
        /// itself.
        attachment: Attachment,
        /// Ports of the host that lead to the guest.
        forwards: Vec<PortForward>,
    },
}

impl Nic {
    /// What is wrong with it, in words for the plan's owner.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.mac[0] & 1 != 0 || self.mac == [0; 6] {
            return Err(format!("{} is no machine's address", mac_text(self.mac)));
        }
        let NicEnd::User { attachment, .. } = &self.end else { return Ok(()) };
        let Attachment { address, prefix_len, gateway, .. } = *attachment;
        let place = format!("{address}/{prefix_len} by {gateway}");
        if !(8..=29).contains(&prefix_len) {
            return Err(format!("{place}: the network must have 8 to 29 bits"));
        }
        if network(address, prefix_len) != network(gateway, prefix_len) || address == gateway {
            return Err(format!("{place}: the gateway must be another address of the network"));
        }
        Ok(())
    }
}

/// The first address of the network.
pub(super) fn network(address: Ipv4Addr, prefix_len: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
    Ipv4Addr::from_bits(address.to_bits() & mask)
}

/// As QEMU and people write it.
pub(super) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_can_have_is_refused() {
        let mac = [2, 0x68, 10, 213, 4, 5];
        let nic = |mac, address: [u8; 4], prefix_len, gateway: [u8; 4]| {
            let (address, gateway) = (address.into(), gateway.into());
            let attachment = Attachment { mac, address, prefix_len, gateway, dns: None };
            Nic { mac, end: NicEnd::User { attachment, forwards: vec![] } }
        };
        assert_eq!(nic(mac, [10, 213, 4, 5], 16, [10, 213, 0, 1]).check(), Ok(()));
        assert_eq!(network([10, 213, 4, 5].into(), 16), Ipv4Addr::new(10, 213, 0, 0));
        assert_eq!(network([10, 213, 4, 5].into(), 0), Ipv4Addr::UNSPECIFIED);
        for wrong in [
            nic([0; 6], [10, 213, 4, 5], 16, [10, 213, 0, 1]),
            nic([1, 0, 0, 0, 0, 1], [10, 213, 4, 5], 16, [10, 213, 0, 1]),
            nic(mac, [10, 213, 4, 5], 30, [10, 213, 4, 6]),
            nic(mac, [10, 213, 4, 5], 24, [10, 213, 5, 1]),
            nic(mac, [10, 213, 4, 5], 24, [10, 213, 4, 5]),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
