//! Connections to forwards of machines that sleep.

use std::{
    net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use hivekeep_network::{
    Namespace,
    selftest::{
        talk::{self, PATIENCE},
        test_network::HOST,
    },
};
use serde_json::json;

use super::{destroy, forward, info, rules, stage};
use crate::{house::House, leaks};

/// Of a wake, on a host that has other things to do.
const WAKE: Duration = Duration::from_secs(120);

/// A server that says which process it is and what only its machine's memory has, and then echoes.
fn begin(house: &House) -> u16 {
    house.create("w");
    house.exec(
        "w",
        "echo volatile > /dev/shm/x; mkdir -p /srv; printf '#!/bin/sh\\necho tcp $PPID $(cat \
         /dev/shm/x)\\nexec cat\\n' > /srv/serve; chmod +x /srv/serve",
    );
    let command = "exec nc -ll -p 80 -e /srv/serve";
    let args = json!({ "workspace_id": "w", "action": "start", "command": command });
    house.call("exec_background", args);
    house.exec("w", "until netstat -ltn | grep -q ':80 '; do sleep 0.1; done");
    forward(house, "w", 80, None)
}

fn park(house: &House) {
    let parked = house.call("workspace_park", json!({ "workspace_id": "w" }));
    assert_eq!(parked["state"], "parked", "{parked}");
}

fn inside(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

fn open(from: &Namespace, to: SocketAddrV4) -> (TcpStream, String) {
    talk::open(from, to, WAKE).expect("it is answered")
}

/// Whether the kernel leads connections to the guest.
fn led(house: &House, port: u16) -> bool {
    rules(&stage(house).host).contains(&format!("dport {port} dnat"))
}

/// A daemon that starts listens a moment after it answers.
fn open_at_last(house: &House, to: SocketAddrV4) -> (TcpStream, String) {
    let begun = Instant::now();
    loop {
        match talk::open(&stage(house).host, to, WAKE) {
            Ok(opened) => return opened,
            Err(error) => assert!(begun.elapsed() < WAKE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Twice: its port is the machine's again in between.
fn a_datagram_wakes(house: &House) {
    let args = json!({ "workspace_id": "w", "action": "add", "guest_port": 81, "protocol": "udp" });
    let added = house.call("port_forward", args);
    let to = inside(u16::try_from(added["host_port"].as_u64().expect("a port")).expect("a port"));
    let client = stage(house).host.run(|| UdpSocket::bind("127.0.0.1:0")).expect("a socket");
    for _ in 0..2 {
        park(house);
        // The machine's process has ended, but whoever hears for it may not be there yet.
        let begun = Instant::now();
        while info(house, "w")["state"] == "parked" {
            assert!(begun.elapsed() < WAKE, "datagrams wake nobody");
            // Until the machine has its port, the host may say that nobody does.
            let _ = client.send_to(b"wake", to);
            std::thread::sleep(Duration::from_millis(100));
        }
        house.wait_state("w", "running");
    }
}

pub fn a_connection_wakes_a_parked_machine(mut house: House) {
    let port = begin(&house);
    let outside = SocketAddrV4::new(HOST, port);
    let (_, awake) = open(&stage(&house).world, outside);
    assert!(awake.starts_with("tcp ") && awake.ends_with(" volatile"), "{awake}");
    assert!(led(&house, port));

    park(&house);
    assert!(!led(&house, port), "packets go to a machine that is not there");
    // From all sides at once: one machine is woken, and each of them answered.
    let mut carried: Vec<_> = std::thread::scope(|scope| {
        let ways = [false, true, false, true].map(|from_world| {
            let stage = stage(&house);
            scope.spawn(move || match from_world {
                true => open(&stage.world, outside),
                false => open(&stage.host, inside(port)),
            })
        });
        ways.into_iter().map(|way| way.join().expect("it is answered")).collect()
    });
    assert!(carried.iter().all(|(_, greeting)| *greeting == awake), "{carried:?}");
    house.wait_state("w", "running");
    assert!(led(&house, port), "the kernel leads to a machine that is awake");
    let mut straight = open(&stage(&house).world, outside);
    assert_eq!(straight.1, awake);
    // Longer than the port is still listened to.
    std::thread::sleep(Duration::from_secs(2));
    assert!(talk::carries(&mut straight.0, PATIENCE));
    assert!(carried.iter_mut().all(|(stream, _)| talk::carries(stream, PATIENCE)));

    // A connection of the time before: what comes over it wakes the machine, and is answered.
    park(&house);
    assert!(talk::carries(&mut straight.0, WAKE), "a packet is lost");
    house.wait_state("w", "running");

    a_datagram_wakes(&house);
    assert!(talk::carries(&mut straight.0, PATIENCE));

    // One that is forwarded while it sleeps, beside connections of the time before.
    park(&house);
    let second = forward(&house, "w", 80, None);
    assert_eq!(open(&stage(&house).host, inside(second)).1, awake);
    house.wait_state("w", "running");
    assert!(led(&house, second) && led(&house, port));

    park(&house);
    house.kill();
    house.start();
    let (mut stream, greeting) = open_at_last(&house, inside(port));
    assert_eq!(greeting, awake, "after the daemon was killed");
    assert!(talk::carries(&mut stream, PATIENCE));
    house.wait_state("w", "running");
    assert!(led(&house, second) && led(&house, port));
    assert_eq!(open(&stage(&house).world, outside).1, awake);

    // A forward that is over wakes nobody.
    park(&house);
    let remove =
        json!({ "workspace_id": "w", "action": "remove", "guest_port": 80, "host_port": second });
    house.call("port_forward", remove);
    assert!(talk::tcp(&stage(&house).host, inside(second), PATIENCE).is_err());
    assert_eq!(info(&house, "w")["state"], "parked");
    destroy(&house, "w");
    assert!(talk::tcp(&stage(&house).host, inside(port), PATIENCE).is_err());
    leaks::check(&house);
}

/// In user mode the machine has its ports itself; while it sleeps the daemon has them.
pub fn alone_it_is_woken_too(mut house: House) {
    let port = begin(&house);
    let (_, awake) = open(&stage(&house).host, inside(port));
    park(&house);
    let (mut carried, greeting) = open(&stage(&house).host, inside(port));
    assert_eq!(greeting, awake);
    house.wait_state("w", "running");
    assert_eq!(open(&stage(&house).host, inside(port)).1, awake);
    assert!(talk::carries(&mut carried, PATIENCE));
    a_datagram_wakes(&house);
    park(&house);
    house.kill();
    house.start();
    assert_eq!(open_at_last(&house, inside(port)).1, awake, "after the daemon was killed");
    house.wait_state("w", "running");
    assert_eq!(open(&stage(&house).host, inside(port)).1, awake);
    leaks::check(&house);
}
