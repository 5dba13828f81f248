//! Guests among themselves.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;

use super::{PORT, Scene, Side};
use crate::Error;
use crate::plan::MemberPolicy;
use crate::selftest::frames::{self, BROADCAST, ethernet};
use crate::selftest::talk::{QUIET, TestServer};

/// Payload of the frames that are looked for.
const MARK: &[u8] = b"from a stranger";
/// An ethertype for experiments.
const EXPERIMENT: u16 = 0x88b5;

pub(super) fn apart(scene: &mut Scene) -> Result<(), Error> {
    let to = SocketAddrV4::new(scene.b().lease.address, PORT);
    let server = TestServer::start(&scene.b().inside, to)?;
    scene.closed("a to b", Side::A, to, &server);
    let back = SocketAddrV4::new(scene.a().lease.address, PORT);
    let other = TestServer::start(&scene.a().inside, back)?;
    scene.closed("b to a", Side::B, back, &other);
    // A policy that is open on one side is not enough.
    let open =
        MemberPolicy { allow_inter_vm: true, allow_internet: true, ..MemberPolicy::default() };
    scene.policy(scene.a, open)?;
    scene.closed("a to b, allowed by a alone", Side::A, to, &server);
    scene.closed("b to a, allowed by a alone", Side::B, back, &other);
    scene.b().forget();
    raw(scene, to)?;
    std::thread::sleep(QUIET);
    let (b, a) = (scene.b(), scene.a().lease.mac);
    let (marked, from_a) = (b.received(MARK), b.received_from(a));
    let seen = format!("{marked} marked frames, {from_a} frames from a's MAC");
    scene.expect("raw frames of a at b", marked == 0 && from_a == 0, seen);
    let heard = server.received("stranger");
    scene.expect("raw datagrams of a at b", heard == 0, format!("{heard} heard"));
    Ok(())
}

/// Frames that a hostile kernel would send, to b itself and to everyone.
fn raw(scene: &Scene, to: SocketAddrV4) -> Result<(), Error> {
    let (a, b) = (scene.a().lease, scene.b().lease);
    let gateway = scene.network.subnet().gateway();
    let from = SocketAddrV4::new(a.address, PORT);
    for frame in [
        ethernet(b.mac, a.mac, EXPERIMENT, MARK),
        ethernet(BROADCAST, a.mac, EXPERIMENT, MARK),
        frames::udp(b.mac, a.mac, [from, to], MARK),
        frames::udp(BROADCAST, a.mac, [from, SocketAddrV4::new([255; 4].into(), PORT)], MARK),
        frames::tagged(b.mac, a.mac, [from, to], MARK),
        frames::ipv6(a.mac),
        frames::arp_question(a.mac, a.address, b.address),
        frames::arp_claim(a.mac, a.mac, a.address, (b.mac, b.address)),
        frames::arp_claim(a.mac, a.mac, gateway, (b.mac, b.address)),
    ] {
        scene.a().send(&frame).map_err(Error::io("send a frame"))?;
    }
    Ok(())
}

pub(super) fn together(scene: &mut Scene) -> Result<(), Error> {
    let to = SocketAddrV4::new(scene.b().lease.address, PORT);
    let server = TestServer::start(&scene.b().inside, to)?;
    scene.closed("a to b", Side::A, to, &server);
    let open = MemberPolicy { allow_inter_vm: true, ..MemberPolicy::default() };
    scene.policy(scene.a, open.clone())?;
    scene.policy(scene.b, open.clone())?;
    scene.open("a to b, allowed", Side::A, to);
    let seen = scene.a().lease.address.to_string();
    scene.expect("b sees a's own address", server.received(&seen) > 0, seen);
    let elsewhere = SocketAddrV4::new(*to.ip(), PORT + 1);
    let second = TestServer::start(&scene.b().inside, elsewhere)?;
    let limited = MemberPolicy { allowed_ports: BTreeSet::from([PORT]), ..open };
    scene.policy(scene.b, limited)?;
    scene.open("a to an allowed port of b", Side::A, to);
    scene.closed("a to another port of b", Side::A, elsewhere, &second);
    scene.policy(scene.a, MemberPolicy::default())?;
    scene.closed("a to b, no longer allowed", Side::A, to, &server);
    Ok(())
}
