//! The network interface in QEMU's command line, and in saved states.
//!
//! What a guest was offered depends on the host's end: only a tap's frames come with the header
//! that leaves checksums and segments to the other side. A state that was saved with it can only
//! be loaded where there is such an end again. One without can be loaded with any.
//!
//! QEMU changes the forwards of a user-mode network by its commands for people, whose answers are prose. What counts is
//! its table of them, read before and after.

use std::net::Ipv4Addr;
use std::os::fd::RawFd;
use std::sync::Arc;

use hivekeep_ports::{ForwardedPort, InterfaceSettings, Transport};

use super::control::Control;
use super::{qmp, tap};
use crate::plan::{mac_text, network};
use crate::snapshot::SavedNic;
use crate::{Error, MachinePlan, Nic, NicEnd};

/// QEMU's ids of the network backend and of the device.
const CABLE: &str = "net";
pub(super) const NIC: &str = "nic";
/// The kind of device, which is part of a machine's shape. The guest is not asked to announce
/// itself after a restore: it would do so as the machine that was saved.
pub(super) const DEVICE: &str = "virtio-net-device,guest_announce=off";
/// MAC of an interface that exists for the sake of a saved state alone.
const UNUSED_MAC: [u8; 6] = [0x02, 0x68, 0, 0, 0, 0];

/// The values of `-netdev` and `-device`. `tap` is the number of the end's descriptor.
pub(super) fn words(nic: &Nic, tap: RawFd) -> (String, String) {
    let cable = match &nic.end {
        NicEnd::Unplugged => format!("hubport,id={CABLE},hubid=0"),
        NicEnd::Tap(_) => format!("tap,id={CABLE},fd={tap},vhost=off"),
        NicEnd::User { attachment, forwards } => user(attachment, forwards),
    };
    (cable, format!("{DEVICE},id={NIC},netdev={CABLE},mac={}", mac_text(nic.mac)))
}

fn user(place: &InterfaceSettings, forwards: &[ForwardedPort]) -> String {
    let InterfaceSettings { address, prefix_len, gateway, .. } = *place;
    let net = network(address, prefix_len);
    // Its name server answers nobody, but needs an address.
    let mut others = (2..).map(|offset| Ipv4Addr::from_bits(net.to_bits() | offset));
    let dns = others.find(|one| *one != address && *one != gateway);
    let dns = dns.expect("two of three addresses are taken at most");
    let mut value = format!(
        "user,id={CABLE},restrict=on,ipv6=off,net={net}/{prefix_len},host={gateway},\
         dhcpstart={address},dns={dns}"
    );
    for forward in forwards {
        value.push_str(",hostfwd=");
        value.push_str(&rule(forward, address));
    }
    value
}

/// The host's part of a forward, as QEMU writes it.
fn host_end(forward: &ForwardedPort) -> String {
    let transport = match forward.transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    };
    format!("{transport}:{}:{}", forward.host_ip, forward.host_port)
}

/// `guest` may be empty for the guest that QEMU was started with.
fn rule(forward: &ForwardedPort, guest: impl std::fmt::Display) -> String {
    format!("{}-{guest}:{}", host_end(forward), forward.guest_port)
}

/// The interface that a machine of this plan is saved with.
pub(super) fn saved(plan: &MachinePlan) -> SavedNic {
    match plan.nic.as_ref().map(|nic| &nic.end) {
        None => SavedNic::None,
        Some(NicEnd::Tap(_)) => SavedNic::Tap,
        Some(NicEnd::Unplugged | NicEnd::User { .. }) => SavedNic::Plain,
    }
}

/// The plan with the interface that a saved state needs: none, or one without a backend where the plan has
/// none.
pub(super) fn fit(plan: &MachinePlan, saved: SavedNic) -> Result<MachinePlan, Error> {
    let wished = plan.nic.clone();
    let nic = match saved {
        SavedNic::None => None,
        SavedNic::Plain => wished.or(Some(Nic { mac: UNUSED_MAC, end: NicEnd::Unplugged })),
        SavedNic::Tap => {
            let mac = wished.as_ref().map_or(UNUSED_MAC, |nic| nic.mac);
            let end = match wished.map(|nic| nic.end) {
                Some(NicEnd::User { .. }) => {
                    return Err(Error::ShapeDiffers {
                        what: "the end of the network cable",
                        saved: "a tap".into(),
                        here: "QEMU's own network".into(),
                    });
                }
                Some(NicEnd::Tap(tap)) => tap,
                None | Some(NicEnd::Unplugged) => Arc::new(tap::lost()?),
            };
            Some(Nic { mac, end: NicEnd::Tap(end) })
        }
    };
    Ok(MachinePlan { nic, ..plan.clone() })
}

/// [`crate::Driver::set_forwards`], by the monitor of a running QEMU.
pub(super) async fn set(control: &Control, wanted: &[ForwardedPort]) -> Result<(), Error> {
    let mut said = String::new();
    let before = table(control).await?;
    for gone in before.iter().filter(|one| !wanted.contains(one)) {
        let command = format!("hostfwd_remove {CABLE} {}", host_end(gone));
        said.push_str(&control.monitor(&command).await?);
    }
    for new in wanted.iter().filter(|one| !before.contains(one)) {
        let command = format!("hostfwd_add {CABLE} {}", rule(new, ""));
        said.push_str(&control.monitor(&command).await?);
    }
    let after = table(control).await?;
    let missing = wanted.iter().find(|one| !after.contains(one));
    let left = after.iter().find(|one| !wanted.contains(one));
    match missing.or(left) {
        None => Ok(()),
        Some(one) => {
            let rule = rule(one, "");
            let description = format!("the forward {rule} did not change: {}", said.trim());
            let class = "hostfwd".into();
            Err(qmp::Error::Refused { class, description }.into())
        }
    }
}

async fn table(control: &Control) -> Result<Vec<ForwardedPort>, Error> {
    Ok(parse(&control.monitor("info usernet").await?))
}

/// The forwards among the connections that `info usernet` lists.
fn parse(text: &str) -> Vec<ForwardedPort> {
    text.lines().filter_map(forward).collect()
}

fn forward(line: &str) -> Option<ForwardedPort> {
    let mut words = line.split_ascii_whitespace();
    let transport = match words.next()? {
        "TCP[HOST_FORWARD]" => Transport::Tcp,
        "UDP[HOST_FORWARD]" => Transport::Udp,
        _ => return None,
    };
    let _descriptor = words.next()?;
    let host_ip = match words.next()? {
        "*" => Ipv4Addr::UNSPECIFIED,
        address => address.parse().ok()?,
    };
    let host_port = words.next()?.parse().ok()?;
    let _guest = words.next()?;
    let guest_port = words.next()?.parse().ok()?;
    Some(ForwardedPort { transport, host_ip, host_port, guest_port })
}

#[cfg(test)]
mod tests;
