//! Members of groups.

use std::net::SocketAddrV4;
use std::time::Instant;

use super::{PORT, Scene, Side};
use crate::Error;
use crate::plan::{AddressLease, MemberPolicy};
use crate::selftest::frames;
use crate::selftest::talk::{self, PATIENCE, QUIET, TestServer};

/// Payload of the packets that are looked for.
const MARK: &[u8] = b"from a mate";

fn of(group: &str) -> MemberPolicy {
    MemberPolicy { group: Some(group.parse().expect("a group")), ..MemberPolicy::default() }
}

pub(super) fn groups(scene: &mut Scene) -> Result<(), Error> {
    let to = SocketAddrV4::new(scene.b().lease.address, PORT);
    let back = SocketAddrV4::new(scene.a().lease.address, PORT);
    let server = TestServer::start(&scene.b().inside, to)?;
    let other = TestServer::start(&scene.a().inside, back)?;
    scene.policy(scene.a, of("a"))?;
    scene.policy(scene.b, of("a-b"))?;
    scene.closed("group a to group a-b", Side::A, to, &server);
    scene.closed("group a-b to group a", Side::B, back, &other);
    // Opening b to others does not open it to a group that it is not in.
    scene.policy(scene.b, MemberPolicy { allow_inter_vm: true, ..of("a-b") })?;
    scene.closed("group a to group a-b with allow_inter_vm", Side::A, to, &server);
    passes(scene, "a protocol without ports to another group", false)?;

    scene.policy(scene.b, of("a"))?;
    scene.open("a to b, of one group", Side::A, to);
    scene.open("b to a, of one group", Side::B, back);
    passes(scene, "a protocol without ports within a group", true)?;
    let elsewhere = SocketAddrV4::new(*to.ip(), PORT + 1);
    let second = TestServer::start(&scene.b().inside, elsewhere)?;
    scene.policy(scene.b, MemberPolicy { allowed_ports: [PORT].into(), ..of("a") })?;
    scene.open("a to an allowed port of b", Side::A, to);
    scene.closed("a to another port of b", Side::A, elsewhere, &second);

    scene.policy(scene.b, of("a"))?;
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
    let frame = frames::experiment(gateway, a.mac, [a.address, b.address], MARK);
    scene.b().forget();
    let end = Instant::now() + if promised { PATIENCE } else { QUIET };
    while scene.b().received(MARK) == 0 && Instant::now() < end {
        scene.a().send(&frame).map_err(Error::io("send a frame"))?;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let heard = scene.b().received(MARK);
    scene.expect(what, (heard > 0) == promised, format!("{heard} arrived"));
    Ok(())
}
