//! Guests, the host and the world: the way out, the host itself, its ports that lead to guests, and
//! the host whose packet filter was emptied, with guests that go on.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::frames;
use super::talk::{self, PATIENCE, QUIET, TestServer};
use super::test_network::{HOST, METADATA, PRIVATE, PUBLIC, route_to_guests};
use super::{PORT, Scene, Side};
use crate::Error;
use crate::plan::{AddressLease, Forward, MemberPolicy, Protocol};

fn allowing(destinations: &[String]) -> MemberPolicy {
    let parsed = destinations.iter().map(|text| text.parse().expect("a destination"));
    MemberPolicy { egress_allow: parsed.collect(), ..MemberPolicy::default() }
}

pub(super) fn internet(scene: &mut Scene) -> Result<(), Error> {
    let to = SocketAddrV4::new(PUBLIC, PORT);
    let server = TestServer::start(&scene.stage.world, to)?;
    scene.closed("a to a public server", Side::A, to, &server);
    scene.policy(scene.a, MemberPolicy { allow_internet: true, ..MemberPolicy::default() })?;
    scene.open("a to a public server, allowed", Side::A, to);
    let seen = server.received(&HOST.to_string());
    scene.expect("its source is the host's address", seen > 0, format!("{seen} heard"));
    scene.closed("b to a public server", Side::B, to, &server);
    scene.policy(scene.a, MemberPolicy::default())?;
    scene.closed("a to a public server, no longer allowed", Side::A, to, &server);
    Ok(())
}

pub(super) fn private(scene: &mut Scene) -> Result<(), Error> {
    let at = |address| SocketAddrV4::new(address, PORT);
    let metadata = TestServer::start(&scene.stage.world, at(METADATA))?;
    let private = TestServer::start(&scene.stage.world, at(PRIVATE))?;
    let second = SocketAddrV4::new(PRIVATE, PORT + 1);
    let other = TestServer::start(&scene.stage.world, second)?;
    scene.policy(scene.a, MemberPolicy { allow_internet: true, ..MemberPolicy::default() })?;
    scene.closed("a to metadata, with the internet", Side::A, at(METADATA), &metadata);
    scene.closed("a to a private server, with the internet", Side::A, at(PRIVATE), &private);
    scene.policy(scene.a, allowing(&[format!("{PRIVATE}:{PORT}"), METADATA.to_string()]))?;
    scene.open("a to a private server, named", Side::A, at(PRIVATE));
    scene.open("a to metadata, named", Side::A, at(METADATA));
    scene.closed("a to another port of it", Side::A, second, &other);
    scene.policy(scene.a, allowing(&["192.168.0.0/16".to_owned()]))?;
    scene.open("a into a named block", Side::A, second);
    scene.closed("a to metadata, not named", Side::A, at(METADATA), &metadata);
    Ok(())
}

pub(super) fn host(scene: &mut Scene) -> Result<(), Error> {
    let gateway = scene.network.subnet().gateway();
    let policy =
        MemberPolicy { allow_internet: true, allow_inter_vm: true, ..MemberPolicy::default() };
    scene.policy(scene.a, policy)?;
    for address in [gateway, HOST] {
        let at = SocketAddrV4::new(address, PORT);
        let server = TestServer::start(&scene.stage.host, at)?;
        scene.open("the host to itself", Side::Host, at);
        scene.closed("a to the host", Side::A, at, &server);
    }
    let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT);
    let server = TestServer::start(&scene.stage.host, at)?;
    let a = scene.a().lease;
    let path = [SocketAddrV4::new(a.address, PORT), at];
    let frame = frames::udp(AddressLease::at(gateway).mac, a.mac, path, b"to loopback");
    scene.a().send(&frame).map_err(Error::io("send a frame"))?;
    std::thread::sleep(QUIET);
    let heard = server.received("to loopback");
    scene.expect("a to the host's loopback", heard == 0, format!("{heard} arrived"));
    let at = SocketAddrV4::new(a.address, PORT);
    let server = TestServer::start(&scene.a().inside, at)?;
    scene.open("the host to a", Side::Host, at);
    // Gives the host's neighbours a route to its guests.
    scene.stage.world.block_on(route_to_guests)?;
    scene.closed("the world to a, past the forwards", Side::World, at, &server);
    Ok(())
}

pub(super) fn changes(scene: &mut Scene) -> Result<(), Error> {
    let to = SocketAddrV4::new(PUBLIC, PORT);
    let _server = TestServer::start(&scene.stage.world, to)?;
    let internet = MemberPolicy { allow_internet: true, ..MemberPolicy::default() };
    scene.policy(scene.a, internet.clone())?;
    scene.policy(scene.b, internet.clone())?;
    let of_a = talk::open(&scene.a().inside, to, PATIENCE);
    let of_b = talk::open(&scene.b().inside, to, PATIENCE);
    let (Ok((mut of_a, _)), Ok((mut of_b, _))) = (of_a, of_b) else {
        scene.expect("connections of a and b", false, "could not be opened");
        return Ok(());
    };
    let carried = talk::carries(&mut of_a, PATIENCE) && talk::carries(&mut of_b, PATIENCE);
    scene.expect("both connections", carried, "carry bytes");
    scene.policy(scene.a, MemberPolicy::default())?;
    let cut = !talk::carries(&mut of_a, QUIET);
    scene.expect("a's connection, no longer allowed", cut, format!("ended: {cut}"));
    let kept = talk::carries(&mut of_b, PATIENCE);
    scene.expect("b's connection", kept, format!("goes on: {kept}"));
    scene.policy(
        scene.b,
        MemberPolicy {
            egress_allow: vec![PUBLIC.to_string().parse().expect("an address")],
            ..internet
        },
    )?;
    let kept = talk::carries(&mut of_b, PATIENCE);
    scene.expect("b's connection after a change of b", kept, format!("goes on: {kept}"));
    Ok(())
}

fn both(host_ip: Ipv4Addr, host_port: u16, guest_port: u16) -> Vec<Forward> {
    let one = |protocol| Forward { host_ip, host_port, guest_port, protocol };
    Protocol::ALL.map(one).into()
}

pub(super) fn forwards(scene: &mut Scene) -> Result<(), Error> {
    let in_a = SocketAddrV4::new(scene.a().lease.address, PORT);
    let server = TestServer::start(&scene.a().inside, in_a)?;
    let inner = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080);
    let outer = SocketAddrV4::new(HOST, 8081);
    scene.closed("loopback, no forward", Side::Host, inner, &server);
    scene.closed("the world, no forward", Side::World, outer, &server);
    let mut all = both(*inner.ip(), inner.port(), PORT);
    all.extend(both(Ipv4Addr::UNSPECIFIED, outer.port(), PORT));
    scene.forwards(scene.a, all.clone())?;
    scene.open("loopback", Side::Host, inner);
    scene.open("the world", Side::World, outer);
    scene.open("the host by its own address", Side::Host, outer);
    let anywhere = SocketAddrV4::new(*inner.ip(), outer.port());
    scene.open("loopback, forward of every address", Side::Host, anywhere);
    let seen = talk::tcp(&scene.stage.world, outer, PATIENCE);
    let own = seen.as_ref().is_ok_and(|seen| seen.contains("198.51.100.1"));
    scene.expect("a sees who asks from outside", own, format!("{seen:?}"));
    let from_outside = SocketAddrV4::new(HOST, inner.port());
    scene.closed("the world to the forward of loopback", Side::World, from_outside, &server);
    captures_nothing(scene, outer.port())?;
    let opened = talk::open(&scene.stage.host, inner, PATIENCE);
    scene.forwards(scene.a, all.split_off(2))?;
    scene.closed("loopback, forward removed", Side::Host, inner, &server);
    let ended = opened.is_ok_and(|(mut open, _)| !talk::carries(&mut open, QUIET));
    scene.expect("its running connection", ended, format!("ended: {ended}"));
    scene.open("the other forward, still there", Side::World, outer);
    Ok(())
}

/// Connections of guests and host to the same port elsewhere go where they are addressed.
fn captures_nothing(scene: &mut Scene, port: u16) -> Result<(), Error> {
    let elsewhere = SocketAddrV4::new(PUBLIC, port);
    let server = TestServer::start(&scene.stage.world, elsewhere)?;
    scene.policy(scene.b, MemberPolicy { allow_internet: true, ..MemberPolicy::default() })?;
    scene.open("b to the same port of a public server", Side::B, elsewhere);
    scene.open("the host to the same port of a public server", Side::Host, elsewhere);
    let heard = server.received("");
    scene.expect("at that server", heard >= 4, format!("{heard} heard"));
    Ok(())
}

/// A may do what it likes, and the host's loopback leads to it: nothing but the wall is in its way.
pub(super) fn empty(scene: &mut Scene) -> Result<(), Error> {
    let gateway = scene.network.subnet().gateway();
    let [in_a, in_b] = [scene.a(), scene.b()].map(|guest| guest.lease.address);
    let at = |address| SocketAddrV4::new(address, PORT);
    let guests = [
        TestServer::start(&scene.a().inside, at(in_a))?,
        TestServer::start(&scene.b().inside, at(in_b))?,
    ];
    let public = TestServer::start(&scene.stage.world, at(PUBLIC))?;
    let open =
        MemberPolicy { allow_internet: true, allow_inter_vm: true, ..MemberPolicy::default() };
    scene.policy(scene.a, open.clone())?;
    scene.policy(scene.b, open)?;
    let (host_ip, protocol) = (Ipv4Addr::LOCALHOST, Protocol::Tcp);
    let forward = Forward { host_ip, host_port: 8080, guest_port: PORT, protocol };
    scene.forwards(scene.a, vec![forward])?;
    scene.open("a to b", Side::A, at(in_b));
    scene.open("a to a public server", Side::A, at(PUBLIC));
    // Gives the host's neighbours a route to its guests.
    scene.stage.world.block_on(route_to_guests)?;

    scene.stage.lose_rules()?;
    let any = TestServer::start(&scene.stage.host, at(Ipv4Addr::UNSPECIFIED))?;
    for address in [gateway, HOST] {
        scene.open("the host to itself, filter empty", Side::Host, at(address));
        scene.closed("a to the host, filter empty", Side::A, at(address), &any);
    }
    scene.closed("a to b, filter empty", Side::A, at(in_b), &guests[1]);
    scene.closed("a to a public server, filter empty", Side::A, at(PUBLIC), &public);
    scene.closed("the world to a, filter empty", Side::World, at(in_a), &guests[0]);
    frames_of_a(scene, &any)?;

    scene.stage.ensure(&scene.network)?;
    scene.open("a to a public server, rules back", Side::A, at(PUBLIC));
    scene.open("a to b, rules back", Side::A, at(in_b));
    Ok(())
}

/// Datagrams that no routing would lead to the host: to its loopback, to everyone, to a group.
fn frames_of_a(scene: &mut Scene, any: &TestServer) -> Result<(), Error> {
    let (a, bridge) = (scene.a().lease, AddressLease::at(scene.network.subnet().gateway()).mac);
    let nobody = Ipv4Addr::UNSPECIFIED;
    for (from, to) in [
        (a.address, Ipv4Addr::LOCALHOST),
        (a.address, Ipv4Addr::BROADCAST),
        (nobody, Ipv4Addr::BROADCAST),
        (a.address, Ipv4Addr::new(224, 0, 0, 1)),
    ] {
        let path = [from, to].map(|address| SocketAddrV4::new(address, PORT));
        for mac in [bridge, frames::BROADCAST] {
            let frame = frames::udp(mac, a.mac, path, b"through nothing");
            scene.a().send(&frame).map_err(Error::io("send a frame"))?;
        }
    }
    std::thread::sleep(QUIET);
    let heard = any.received("through nothing");
    scene.expect("a's datagrams at the host, filter empty", heard == 0, format!("{heard} arrived"));
    Ok(())
}
