//! Guests that say they are someone else.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::{PORT, Scene, Side};
use crate::Error;
use crate::plan::{AddressLease, Mac, MemberPolicy};
use crate::selftest::frames;
use crate::selftest::talk::{QUIET, TestServer};
use crate::selftest::test_network::PUBLIC;

pub(super) fn true_ones(scene: &mut Scene) -> Result<(), Error> {
    let to = SocketAddrV4::new(PUBLIC, PORT);
    let server = TestServer::start(&scene.stage.world, to)?;
    // Both may go out, so that only the sender can be what stops a datagram.
    let internet = MemberPolicy { allow_internet: true, ..MemberPolicy::default() };
    scene.policy(scene.a, internet.clone())?;
    scene.policy(scene.b, internet)?;
    scene.open("a by its kernel", Side::A, to);
    let (a, b) = (scene.a().lease, scene.b().lease);
    let gateway = scene.network.subnet().gateway();
    let bridge = AddressLease::at(gateway).mac;
    let from = |address: Ipv4Addr| [SocketAddrV4::new(address, PORT), to];
    let frames = [
        ("true", frames::udp(bridge, a.mac, from(a.address), b"frame true")),
        ("the address of b", frames::udp(bridge, a.mac, from(b.address), b"frame false")),
        (
            "the address of nobody",
            frames::udp(bridge, a.mac, from([10, 213, 255, 9].into()), b"frame false"),
        ),
        ("the host's address", frames::udp(bridge, a.mac, from(gateway), b"frame false")),
        (
            "a foreign address",
            frames::udp(bridge, a.mac, from([192, 0, 2, 7].into()), b"frame false"),
        ),
        ("the MAC of b", frames::udp(bridge, b.mac, from(a.address), b"frame false")),
        ("MAC and address of b", frames::udp(bridge, b.mac, from(b.address), b"frame false")),
        (
            "the MAC of nobody",
            frames::udp(bridge, Mac([2, 1, 1, 1, 1, 1]), from(a.address), b"frame false"),
        ),
        ("a VLAN tag", frames::tagged(bridge, a.mac, from(a.address), b"frame false")),
    ];
    for (_, frame) in &frames {
        scene.a().send(frame).map_err(Error::io("send a frame"))?;
    }
    std::thread::sleep(QUIET);
    let (honest, false_ones) = (server.received("frame true"), server.received("frame false"));
    scene.expect("the true frame", honest == 1, format!("{honest} arrived"));
    let kinds: Vec<_> = frames[1..].iter().map(|(what, _)| *what).collect();
    let seen = format!("{false_ones} of {} arrived ({})", kinds.len(), kinds.join(", "));
    scene.expect("false frames", false_ones == 0, seen);
    claims(scene, bridge, gateway)?;
    scene.open("b after a claimed its address", Side::B, to);
    Ok(())
}

/// A claims b's address and its MAC by ARP; the host must go on believing b.
fn claims(scene: &mut Scene, bridge: Mac, gateway: Ipv4Addr) -> Result<(), Error> {
    let (a, b) = (scene.a().lease, scene.b().lease);
    let at_b = SocketAddrV4::new(b.address, PORT);
    let server = TestServer::start(&scene.b().inside, at_b)?;
    scene.open("the host to b", Side::Host, at_b);
    for frame in [
        frames::arp_claim(a.mac, a.mac, b.address, (bridge, gateway)),
        frames::arp_claim(b.mac, b.mac, b.address, (bridge, gateway)),
        frames::arp_question(a.mac, b.address, gateway),
    ] {
        scene.a().send(&frame).map_err(Error::io("send a frame"))?;
    }
    let before = server.received("");
    scene.open("the host to b after false claims", Side::Host, at_b);
    let arrived = server.received("") - before;
    scene.expect("the host's packets at b", arrived >= 2, format!("{arrived} arrived"));
    Ok(())
}
