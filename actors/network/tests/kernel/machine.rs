//! A real QEMU takes what it is given, as an unprivileged user.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use hivekeep_network::plan::{Forward, MemberPolicy, Protocol, UserMode};
use hivekeep_network::ports::{AUTOMATIC, PortReservation};
use hivekeep_network::selftest::talk::PATIENCE;
use hivekeep_network::selftest::test_network::TestNetwork;
use hivekeep_network::{HostAccess, Namespace};

use super::ensure::{internet, plan};
use super::needs_root;

const QEMU: &str = "qemu-system-x86_64";
const NOBODY: u32 = 65_534;

fn qemu_is_missing() -> bool {
    Command::new(QEMU).arg("--version").stdout(Stdio::null()).status().is_err()
}

/// Starts QEMU with a network, stopped before its first instruction, and waits for its greeting.
/// Its standard input is what `tap,fd=0` means.
fn start(host: &Namespace, netdev: &str, tap: Option<OwnedFd>) -> Result<[u8; 6], String> {
    let folder = std::env::temp_dir().join(format!("hivekeep-qemu-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    let socket = folder.join("qmp");
    let mut command = Command::new(QEMU);
    command.args("-M microvm -S -display none -nodefaults -no-user-config -m 32".split(' '));
    command.args(["-netdev", netdev, "-device", "virtio-net-device,netdev=net"]);
    command.args("-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny".split(' '));
    command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", socket.display()));
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    command.stdin(tap.map_or(Stdio::null(), Stdio::from)).stdout(Stdio::null());
    let mut machine = host.run(move || command.spawn()).unwrap();
    let end = Instant::now() + PATIENCE * 3;
    let greeting = loop {
        if let Some(status) = machine.try_wait().unwrap() {
            break Err(format!("it ended: {status}"));
        }
        if let Ok(mut stream) = UnixStream::connect(&socket) {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut bytes = [0; 6];
            break stream.read_exact(&mut bytes).map(|()| bytes).map_err(|e| e.to_string());
        }
        if Instant::now() > end {
            break Err("it does not answer".into());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    machine.kill().unwrap();
    machine.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    greeting
}

#[test]
fn the_tap_that_it_is_handed() {
    needs_root!();
    if qemu_is_missing() {
        return hivekeep_skip::skip(format_args!("{QEMU} is not installed"));
    }
    let (network, ids) = plan([internet()]);
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    stage.ensure(&network).unwrap();
    let id = ids[0];
    let tap = stage.host.run(move || hivekeep_network::open_tap(&network, id)).unwrap();
    let greeting = start(&stage.host, "tap,id=net,fd=0", Some(tap));
    assert_eq!(greeting, Ok(*b"{\"QMP\""));
}

#[test]
fn the_network_without_a_bridge() {
    needs_root!();
    if qemu_is_missing() {
        return hivekeep_skip::skip(format_args!("{QEMU} is not installed"));
    }
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    let here = [127, 0, 0, 1].into();
    let free = stage.host.run(move || {
        PortReservation::automatic(here, Protocol::Tcp, AUTOMATIC, |_| false).unwrap().at()
    });
    let (host_ip, host_port, protocol) = (*free.ip(), free.port(), Protocol::Tcp);
    let forward = Forward { host_ip, host_port, guest_port: 80, protocol };
    let closed = UserMode::of(&MemberPolicy::default(), &[forward]).unwrap();
    let greeting = start(&stage.host, &closed.netdev("net"), None);
    assert_eq!(greeting, Ok(*b"{\"QMP\""));
    // A wrong one is not taken, so that the greeting means something.
    assert!(start(&stage.host, "user,id=net,hostfwd=none", None).is_err());
}
