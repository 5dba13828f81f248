//! The way out of the host, and the host itself.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::{PORT, Scene, Side};
use crate::Error;
use crate::plan::{AddressLease, MemberPolicy};
use crate::selftest::frames;
use crate::selftest::talk::{self, PATIENCE, QUIET, TestServer};
use crate::selftest::test_network::{HOST, METADATA, PRIVATE, PUBLIC};

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
    scene.stage.world.block_on(crate::selftest::test_network::configure::route_to_guests)?;
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
