//! Forwards of a running machine's user-mode network.
//!
//! QEMU changes them by its commands for people, whose answers are prose. What counts is its table
//! of them, read before and after.

use std::net::Ipv4Addr;

use hivekeep_kernel::ports::{ForwardedPort, Transport};

use super::control::Control;
use super::nic::{self, CABLE};
use super::qmp;
use crate::Error;

/// [`crate::Driver::set_forwards`].
pub(super) async fn set(control: &Control, wanted: &[ForwardedPort]) -> Result<(), Error> {
    let mut said = String::new();
    let before = table(control).await?;
    for gone in before.iter().filter(|one| !wanted.contains(one)) {
        let command = format!("hostfwd_remove {CABLE} {}", nic::host_end(gone));
        said.push_str(&control.monitor(&command).await?);
    }
    for new in wanted.iter().filter(|one| !before.contains(one)) {
        let command = format!("hostfwd_add {CABLE} {}", nic::rule(new, ""));
        said.push_str(&control.monitor(&command).await?);
    }
    let after = table(control).await?;
    let missing = wanted.iter().find(|one| !after.contains(one));
    let left = after.iter().find(|one| !wanted.contains(one));
    match missing.or(left) {
        None => Ok(()),
        Some(one) => {
            let rule = nic::rule(one, "");
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
mod tests {
    use super::*;

    #[test]
    fn forwards_are_found_among_connections() {
        let text = "Hub -1 (net):\r\n  \
            Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n  \
            TCP[ESTABLISHED]   14       127.0.0.1 18080      10.213.4.5    80     0     0\r\n  \
            TCP[HOST_FORWARD]   8       127.0.0.1 18080      10.213.4.5    80     0     0\r\n  \
            UDP[236 sec]       15       127.0.0.1 18081      10.213.4.5    81     0     0\r\n  \
            UDP[HOST_FORWARD]   3               * 18081      10.213.4.5    81     0     0\r\n";
        let forward = |transport, host_ip, host_port, guest_port| ForwardedPort {
            transport,
            host_ip,
            host_port,
            guest_port,
        };
        let tcp = forward(Transport::Tcp, Ipv4Addr::LOCALHOST, 18080, 80);
        let udp = forward(Transport::Udp, Ipv4Addr::UNSPECIFIED, 18081, 81);
        assert_eq!(parse(text), [tcp, udp]);
        assert_eq!(parse("invalid device specified\r\n"), []);
    }
}
