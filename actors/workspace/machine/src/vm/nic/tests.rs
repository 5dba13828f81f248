//! Real machines with real cables. A tap is made in a network of the test's own.

mod bench;
mod words;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use hivekeep_link::{CallTerms, Link, LinkError};
use hivekeep_ports::{ForwardedPort, InterfaceSettings, Transport};
use hivekeep_protocol::{GuestCode, NetworkSet, SetNetwork};

use self::bench::{Bench, HOST, Net};
use super::*;
use crate::Driver;

const SLOW: Duration = Duration::from_secs(120);
const BITS: u8 = 16;

fn place(last: u8) -> InterfaceSettings {
    InterfaceSettings {
        mac: [2, 0x68, 10, 213, 4, last],
        address: [10, 213, 4, last].into(),
        prefix_len: BITS,
        gateway: HOST,
        dns: Some(HOST),
    }
}

fn asked(place: &InterfaceSettings) -> SetNetwork {
    SetNetwork {
        mac: place.mac,
        address: place.address.octets(),
        prefix_len: place.prefix_len,
        gateway: place.gateway.octets(),
        dns: place.dns.map(|dns| dns.octets()),
    }
}

async fn set(link: &Link, place: &InterfaceSettings) -> NetworkSet {
    let begun = std::time::Instant::now();
    let told = link.ask(asked(place), CallTerms::at_most(SLOW)).await.unwrap();
    eprintln!("set in {:?}: {told:?}", begun.elapsed());
    let gateway_answers = told.gateway_answers;
    let SetNetwork { mac, address, prefix_len, gateway, dns } = asked(place);
    let interface = told.interface.clone();
    let expected =
        NetworkSet { interface, mac, address, prefix_len, gateway, dns, gateway_answers };
    assert_eq!(told, expected);
    told
}

/// Text that a guest's server sends to each client. Retries while nobody listens yet.
fn greeting(to: impl Into<SocketAddr>) -> std::io::Result<String> {
    let (to, end) = (to.into(), std::time::Instant::now() + Duration::from_secs(20));
    loop {
        let said =
            TcpStream::connect_timeout(&to, Duration::from_secs(2)).and_then(|mut stream| {
                stream.set_read_timeout(Some(Duration::from_secs(10)))?;
                let mut text = String::new();
                stream.read_to_string(&mut text)?;
                Ok(text.trim().to_owned())
            });
        match said {
            Ok(text) if !text.is_empty() => return Ok(text),
            other if std::time::Instant::now() > end => return other,
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Has the guest say its name and address on a port, for as long as it lives.
async fn serve(link: &Link, port: u16) {
    let script = format!(
        "cat > /tmp/greet <<'X'\n#!/bin/sh\nhostname; cat /sys/class/net/eth0/address\nX\n\
         chmod +x /tmp/greet; while :; do nc -l -p {port} -e /tmp/greet; done"
    );
    bench::job(link, &format!("job_serve{port}"), &script).await;
}

macro_rules! or_skip {
    ($made:expr) => {
        match $made {
            Ok(made) => made,
            Err(why) => return hivekeep_skip::skip(why),
        }
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_takes_its_place_on_a_tap_and_nothing_of_the_one_before_stays() {
    let net = or_skip!(Net::new());
    let (first, second) = (place(5), place(9));
    let end = NicEnd::Tap(net.tap());
    let bench = or_skip!(Bench::start(Some(Nic { mac: first.mac, end })).await);
    assert!(bench.machine.handle.nic);
    let link = &bench.machine.link;
    let told = set(link, &first).await;
    assert!(told.gateway_answers);
    serve(link, 80).await;
    let at = (first.address, 80);
    assert_eq!(net.run(move || greeting(at)).await.unwrap(), "guest\n02:68:0a:d5:04:05");
    // As asked already: nothing is touched, so connections go on.
    let before = bench::run(link, "cat /sys/class/net/eth0/carrier_changes").await;
    assert!(set(link, &first).await.gateway_answers);
    assert_eq!(bench::run(link, "cat /sys/class/net/eth0/carrier_changes").await, before);

    // What a program of the guest added goes, and so does the former place.
    bench::run(
        link,
        "ip addr add 10.99.0.1/24 dev eth0; ip addr add 10.213.4.77/16 dev eth0; \
         ip route add 10.98.0.0/16 via 10.213.0.7; ip link set lo down; \
         ln -sf /tmp/elsewhere /etc/resolv.conf",
    )
    .await;
    assert!(set(link, &second).await.gateway_answers);
    let seen = bench::run(
        link,
        "ip -4 addr show dev eth0 | grep -c inet; ip route | grep -v 'dev lo'; \
         ip -6 addr show dev eth0 2>/dev/null | grep -c inet6; cat /etc/resolv.conf; \
         test -L /etc/resolv.conf || echo a file; ip addr show dev lo | grep -c 127.0.0.1",
    )
    .await;
    let routes =
        "default via 10.213.0.1 dev eth0 \n10.213.0.0/16 dev eth0 scope link  src 10.213.4.9";
    assert_eq!(seen, format!("1\n{routes} \n0\nnameserver 10.213.0.1\na file\n1"));
    let at = (second.address, 80);
    assert_eq!(net.run(move || greeting(at)).await.unwrap(), "guest\n02:68:0a:d5:04:09");
    assert!(net.frames().from(second.mac) > 0);

    // More than a segment at a time: sums and cuts are left to the tap.
    let script = "nc -l -p 81 > /tmp/copy; md5sum < /tmp/copy > /tmp/sum";
    bench::job(link, "job_sink", script).await;
    bench::run(link, "until cat /proc/net/tcp* | grep -q ':0051 '; do sleep 0.1; done").await;
    let bytes = tempfile::NamedTempFile::new().unwrap();
    let data: Vec<u8> = (0..8u32 << 20).map(|n| (n / 7 % 251) as u8).collect();
    std::fs::write(bytes.path(), &data).unwrap();
    let begun = std::time::Instant::now();
    let at = SocketAddr::from((second.address, 81));
    net.run(move || TcpStream::connect(at)?.write_all(&data)).await.unwrap();
    let sum = bench::run(link, "until [ -s /tmp/sum ]; do sleep 0.1; done; cat /tmp/sum").await;
    eprintln!("8 MiB in {:?}", begun.elapsed());
    let here = std::process::Command::new("md5sum").arg(bytes.path()).output().unwrap().stdout;
    assert_eq!(sum.split(' ').next(), String::from_utf8_lossy(&here).split(' ').next());
    bench.end_with(vec![]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_sends_nothing_until_it_is_plugged_in_and_then_nothing_of_its_source() {
    let (home, far) = (or_skip!(Net::new()), or_skip!(Net::new()));
    let (source, own) = (place(5), place(6));
    let end = NicEnd::Tap(home.tap());
    let bench = or_skip!(Bench::start(Some(Nic { mac: source.mac, end })).await);
    assert!(set(&bench.machine.link, &source).await.gateway_answers);
    serve(&bench.machine.link, 80).await;
    // It always has something to say, also while it is saved.
    bench::job(&bench.machine.link, "job_talk", "while :; do ping -c 1 -W 1 10.213.0.1; done")
        .await;
    let snapshot = bench.save("one").await;

    let end = NicEnd::Tap(far.tap());
    let fork = bench.fork(1, &snapshot, Some(Nic { mac: own.mac, end })).await;
    assert!(fork.handle.nic);
    bench::run(&fork.link, "sleep 1").await;
    let told = set(&fork.link, &own).await;
    assert!(!told.gateway_answers, "its link is off");
    bench::run(&fork.link, "sleep 0.3").await;
    assert_eq!(far.frames().guests(), 0);
    bench.driver.plug(&fork.handle).await.unwrap();
    bench.driver.plug(&fork.handle).await.unwrap();
    assert!(set(&fork.link, &own).await.gateway_answers);
    for (net, place) in [(&far, &own), (&home, &source)] {
        let at = (place.address, 80);
        let said = net.run(move || greeting(at)).await.unwrap();
        assert!(said.ends_with(&mac_text(place.mac)), "{said}");
    }
    bench::run(&fork.link, "sleep 1").await;
    let frames = far.frames();
    assert!(frames.from(own.mac) > 0 && frames.from(source.mac) == 0, "{frames:?}");
    assert_eq!(frames.naming(source.address), 0, "{frames:?}");

    // A fork is saved and forked as well; nobody has a cable for its fork.
    let second = bench.save_fork(&fork, "two").await;
    let lost = bench.fork(2, &second, None).await;
    assert!(lost.handle.nic);
    assert!(!set(&lost.link, &place(7)).await.gateway_answers);
    bench.driver.plug(&lost.handle).await.unwrap();
    assert!(!set(&lost.link, &place(7)).await.gateway_answers);
    let frames = (far.frames(), home.frames());
    assert_eq!((frames.0.from(place(7).mac), frames.1.from(place(7).mac)), (0, 0));
    bench.end_with(vec![fork, lost]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forwards_lead_to_a_guest_whose_network_is_qemus_own() {
    let place = InterfaceSettings { dns: None, ..place(5) };
    let port = || {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        free.local_addr().unwrap().port()
    };
    let forward = |host_port, guest_port| ForwardedPort {
        transport: Transport::Tcp,
        host_ip: Ipv4Addr::LOCALHOST,
        host_port,
        guest_port,
    };
    let (first, second) = (forward(port(), 80), forward(port(), 81));
    let end = NicEnd::User { attachment: place, forwards: vec![first] };
    let bench = or_skip!(Bench::start(Some(Nic { mac: place.mac, end })).await);
    let (driver, machine) = (&bench.driver, &bench.machine);
    assert!(set(&machine.link, &place).await.gateway_answers);
    serve(&machine.link, 80).await;
    serve(&machine.link, 81).await;
    let said =
        |forward: ForwardedPort| tokio::task::spawn_blocking(move || greeting(forward.host()));
    assert!(said(first).await.unwrap().unwrap().starts_with("guest"));

    driver.set_forwards(&machine.handle, &[first, second]).await.unwrap();
    driver.set_forwards(&machine.handle, &[first, second]).await.unwrap();
    assert!(said(first).await.unwrap().unwrap().starts_with("guest"));
    assert!(said(second).await.unwrap().unwrap().starts_with("guest"));
    driver.set_forwards(&machine.handle, &[second]).await.unwrap();
    driver.set_forwards(&machine.handle, &[second]).await.unwrap();
    assert!(said(second).await.unwrap().unwrap().starts_with("guest"));
    let refused = TcpStream::connect(first.host()).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let clash = forward(taken.local_addr().unwrap().port(), 80);
    let refused = driver.set_forwards(&machine.handle, &[second, clash]).await.unwrap_err();
    assert!(matches!(&refused, Error::Qmp(_)), "{refused}");
    assert!(refused.to_string().contains(&clash.host_port.to_string()), "{refused}");

    // Nothing else: neither the host's own ports nor a name server.
    let host = taken.local_addr().unwrap().port();
    let script = format!("nc -w 2 10.213.0.1 {host} < /dev/null && echo reached || echo closed");
    assert_eq!(bench::run(&machine.link, &script).await, "closed");
    bench.end_with(vec![]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unplugged_interface_can_be_set_and_a_machine_without_one_says_so() {
    let end = NicEnd::Unplugged;
    let with = or_skip!(Bench::start(Some(Nic { mac: place(5).mac, end })).await);
    assert!(!set(&with.machine.link, &place(5)).await.gateway_answers);
    with.end_with(vec![]).await;

    let bench = or_skip!(Bench::start(None).await);
    let refused =
        bench.machine.link.ask(asked(&place(5)), CallTerms::at_most(SLOW)).await.unwrap_err();
    let LinkError::Guest(error) = &refused else { panic!("{refused}") };
    assert_eq!(error.code, GuestCode::Unsupported, "{refused}");
    assert!(!bench.machine.handle.nic);
    let refused = bench.driver.plug(&bench.machine.handle).await;
    assert!(matches!(refused, Err(Error::NoInterface { .. })), "{refused:?}");
    // A saved state without an interface gives machines without one.
    let snapshot = bench.save("one").await;
    let end = NicEnd::Unplugged;
    let fork = bench.fork(1, &snapshot, Some(Nic { mac: place(6).mac, end })).await;
    assert!(!fork.handle.nic);
    assert_eq!(bench::run(&fork.link, "ls /sys/class/net").await, "lo");
    bench.end_with(vec![fork]).await;
}

#[test]
fn forwards_are_found_among_connections() {
    let text = "Hub -1 (net):\r\n  \
            Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n  \
            TCP[ESTABLISHED]   14       127.0.0.1 18080      10.213.4.5    80     0     0\r\n  \
            TCP[HOST_FORWARD]   8       127.0.0.1 18080      10.213.4.5    80     0     0\r\n  \
            UDP[236 sec]       15       127.0.0.1 18081      10.213.4.5    81     0     0\r\n  \
            UDP[HOST_FORWARD]   3               * 18081      10.213.4.5    81     0     0\r\n";
    let forward = |transport, host_ip, host_port, guest_port| ForwardedPort {
        transport,
        host_ip,
        host_port,
        guest_port,
    };
    let tcp = forward(Transport::Tcp, Ipv4Addr::LOCALHOST, 18080, 80);
    let udp = forward(Transport::Udp, Ipv4Addr::UNSPECIFIED, 18081, 81);
    assert_eq!(parse(text), [tcp, udp]);
    assert_eq!(parse("invalid device specified\r\n"), []);
}
