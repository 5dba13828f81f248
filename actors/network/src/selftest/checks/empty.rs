//! The host whose packet filter was emptied, with guests that go on.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::{PORT, Scene, Side};
use crate::Error;
use crate::plan::{AddressLease, Forward, MemberPolicy, Protocol};
use crate::selftest::frames;
use crate::selftest::talk::{QUIET, TestServer};
use crate::selftest::test_network::{HOST, PUBLIC, configure};

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
    scene.stage.world.block_on(configure::route_to_guests)?;

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
