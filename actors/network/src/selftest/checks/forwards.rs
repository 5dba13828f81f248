//! Ports of the host that lead to guests.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::{PORT, Scene, Side};
use crate::Error;
use crate::plan::{Forward, MemberPolicy, Protocol};
use crate::selftest::talk::{self, PATIENCE, TestServer};
use crate::selftest::test_network::{HOST, PUBLIC};

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
    let ended = opened.is_ok_and(|(mut open, _)| !talk::carries(&mut open, super::QUIET));
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
