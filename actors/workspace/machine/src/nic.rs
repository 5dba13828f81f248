//! Network card of a machine.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use hivekeep_kernel::ports::{ForwardedPort, InterfaceSettings};

/// Network card: its MAC address and its host side.
#[derive(Debug, Clone)]
pub struct Nic {
    /// MAC address that the device reports. A guest from a memory image keeps the one it knows
    /// until it is reconfigured.
    pub mac: [u8; 6],
    /// Host side.
    pub end: NicEnd,
}

/// Host side of a machine's network card.
#[derive(Debug, Clone)]
pub enum NicEnd {
    /// Unplugged: frames of the guest are dropped.
    Unplugged,
    /// Queue of a tap: non-blocking, with a virtio header before each frame.
    Tap(Arc<OwnedFd>),
    /// Network stack of QEMU, which needs no privileges. It acts as the gateway and lets nothing
    /// through but the forwards.
    User {
        /// Settings that the guest is given. The network has at least eight addresses: QEMU takes
        /// one for itself.
        attachment: InterfaceSettings,
        /// Ports of the host that are forwarded to the guest.
        forwards: Vec<ForwardedPort>,
    },
}

impl Nic {
    /// Checks the settings; the error is for the plan's owner.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.mac[0] & 1 != 0 || self.mac == [0; 6] {
            return Err(format!("{} is not a valid address of a machine", mac_text(self.mac)));
        }
        let NicEnd::User { attachment, .. } = &self.end else { return Ok(()) };
        let InterfaceSettings { address, prefix_len, gateway, .. } = *attachment;
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

/// First address of the network.
pub(super) fn network(address: Ipv4Addr, prefix_len: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
    Ipv4Addr::from_bits(address.to_bits() & mask)
}

/// Formats a MAC address as QEMU and people write it.
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
            let attachment = InterfaceSettings { mac, address, prefix_len, gateway, dns: None };
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
