//! Guests among themselves: strangers, members of groups, and those that say they are someone else.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

use super::frames::{self, BROADCAST, ethernet};
use super::talk::{self, PATIENCE, QUIET, TestServer};
use super::test_network::PUBLIC;
use super::{PORT, Scene, Side};
use crate::Error;
use crate::plan::{AddressLease, Mac, MemberPolicy};

/// Payloads of the frames that are looked for.
const STRANGER: &[u8] = b"from a stranger";
const MATE: &[u8] = b"from a mate";
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
    let (marked, from_a) = (b.received(STRANGER), b.received_from(a));
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
        ethernet(b.mac, a.mac, EXPERIMENT, STRANGER),
        ethernet(BROADCAST, a.mac, EXPERIMENT, STRANGER),
        frames::udp(b.mac, a.mac, [from, to], STRANGER),
        frames::udp(BROADCAST, a.mac, [from, SocketAddrV4::new([255; 4].into(), PORT)], STRANGER),
        frames::tagged(b.mac, a.mac, [from, to], STRANGER),
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

fn of_group(group: &str) -> MemberPolicy {
    MemberPolicy { group: Some(group.parse().expect("a group")), ..MemberPolicy::default() }
}

pub(super) fn groups(scene: &mut Scene) -> Result<(), Error> {
    let to = SocketAddrV4::new(scene.b().lease.address, PORT);
    let back = SocketAddrV4::new(scene.a().lease.address, PORT);
    let server = TestServer::start(&scene.b().inside, to)?;
    let other = TestServer::start(&scene.a().inside, back)?;
    scene.policy(scene.a, of_group("a"))?;
    scene.policy(scene.b, of_group("a-b"))?;
    scene.closed("group a to group a-b", Side::A, to, &server);
    scene.closed("group a-b to group a", Side::B, back, &other);
    // Opening b to others does not open it to a group that it is not in.
    scene.policy(scene.b, MemberPolicy { allow_inter_vm: true, ..of_group("a-b") })?;
    scene.closed("group a to group a-b with allow_inter_vm", Side::A, to, &server);
    passes(scene, "a protocol without ports to another group", false)?;

    scene.policy(scene.b, of_group("a"))?;
    scene.open("a to b, of one group", Side::A, to);
    scene.open("b to a, of one group", Side::B, back);
    passes(scene, "a protocol without ports within a group", true)?;
    let elsewhere = SocketAddrV4::new(*to.ip(), PORT + 1);
    let second = TestServer::start(&scene.b().inside, elsewhere)?;
    scene.policy(scene.b, MemberPolicy { allowed_ports: [PORT].into(), ..of_group("a") })?;
    scene.open("a to an allowed port of b", Side::A, to);
    scene.closed("a to another port of b", Side::A, elsewhere, &second);

    scene.policy(scene.b, of_group("a"))?;
    let opened = [(Side::A, to), (Side::B, back)]
        .map(|(side, to)| talk::open(scene.side(side), to, PATIENCE));
    let [Ok((mut of_a, _)), Ok((mut of_b, _))] = opened else {
        scene.expect("connections of a and b", false, "could not be opened");
        return Ok(());
    };
    let carried = [&mut of_a, &mut of_b].map(|stream| talk::carries(stream, PATIENCE));
    scene.expect("both connections", carried == [true; 2], format!("carry bytes: {carried:?}"));
    scene.policy(scene.b, MemberPolicy::default())?;
    let carried = [&mut of_a, &mut of_b].map(|stream| talk::carries(stream, QUIET));
    let seen = format!("carry bytes: {carried:?}");
    scene.expect("both connections after b left", carried == [false; 2], seen);
    scene.closed("a to b, who left", Side::A, to, &server);
    scene.closed("b, who left, to a", Side::B, back, &other);
    Ok(())
}

/// Checks that packets of an unknown protocol from a to b arrive if that is promised, else not.
fn passes(scene: &mut Scene, what: &str, promised: bool) -> Result<(), Error> {
    let (a, b) = (scene.a().lease, scene.b().lease);
    let gateway = AddressLease::at(scene.network.subnet().gateway()).mac;
    let frame = frames::experiment(gateway, a.mac, [a.address, b.address], MATE);
    scene.b().forget();
    let end = Instant::now() + if promised { PATIENCE } else { QUIET };
    while scene.b().received(MATE) == 0 && Instant::now() < end {
        scene.a().send(&frame).map_err(Error::io("send a frame"))?;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let heard = scene.b().received(MATE);
    scene.expect(what, (heard > 0) == promised, format!("{heard} arrived"));
    Ok(())
}

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
