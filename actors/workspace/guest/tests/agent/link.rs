//! The link itself: handshake, versions, events, shutdown.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;

use hivekeep_protocol::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::client::{Host, PATIENCE, hello, shake, shell};
use crate::guest::{Guest, Way, ways};

/// A blocking host that starts one exec and keeps the connection.
pub fn raw_exec(socket: &Path, exec: RunCommand) -> StdStream {
    raw_call(socket, encode(&exec.into_wire()).expect("a request"))
}

/// A blocking host that makes one call and keeps the connection.
pub fn raw_call(socket: &Path, payload: Vec<u8>) -> StdStream {
    let mut stream = StdStream::connect(socket).expect("connect");
    let preamble = sync_preamble([3; 16]);
    stream.write_all(&preamble).expect("preamble");
    stream.read_exact(&mut [0; SYNC_LEN]).expect("echo");
    let hello = Frame { kind: FrameKind::Hello, id: 0, payload: encode(&hello()).expect("hello") };
    stream.write_all(&hello.to_bytes()).expect("hello");
    let request = Frame { kind: FrameKind::Request, id: 1, payload };
    stream.write_all(&request.to_bytes()).expect("request");
    stream
}

async fn closes(stream: &mut UnixStream) {
    let mut rest = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it closes");
    drop(read);
}

#[tokio::test]
async fn bytes_before_the_preamble_are_dropped() {
    let guest = Guest::start(Way::Subreaper);
    let mut stream = UnixStream::connect(guest.socket()).await.expect("connect");
    let stale = Frame { kind: FrameKind::Reply, id: 9, payload: vec![0xff; 5000] }.to_bytes();
    stream.write_all(&stale[..4000]).await.expect("write");
    shake(&mut stream, &hello()).await.expect("welcome");
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_the_connection_closed() {
    let guest = Guest::start(Way::Subreaper);
    let mut stream = UnixStream::connect(guest.socket()).await.expect("connect");
    let wrong = HostHello { token: [8; 32], ..hello() };
    assert_eq!(shake(&mut stream, &wrong).await, Err(HelloRefusal::Token));
    closes(&mut stream).await;
}

#[tokio::test]
async fn a_host_of_other_versions_is_told_ours() {
    let guest = Guest::start(Way::Subreaper);
    let mut stream = UnixStream::connect(guest.socket()).await.expect("connect");
    let newer = HostHello { min_version: 900, max_version: 901, ..hello() };
    let refusal = HelloRefusal::Version { min_version: 1, max_version: 1 };
    assert_eq!(shake(&mut stream, &newer).await, Err(refusal));
    closes(&mut stream).await;
    let mut stream = UnixStream::connect(guest.socket()).await.expect("connect");
    let wide = HostHello { min_version: 0, max_version: 901, ..hello() };
    assert_eq!(shake(&mut stream, &wide).await.expect("welcome").version, 1);
}

#[tokio::test]
async fn the_welcome_says_who_is_there_and_a_restart_counts() {
    for way in ways() {
        let mut guest = Guest::start(way);
        let first = Host::to(&guest).await.welcome;
        let kind = if way == Way::Cgroup { Containment::Cgroup } else { Containment::Subreaper };
        assert_eq!((first.containment, first.daemon_starts), (kind, 1));
        guest.crash_and_restart();
        let second = Host::to(&guest).await.welcome;
        assert_eq!((second.daemon_starts, second.boot_id), (2, first.boot_id));
    }
}

#[tokio::test]
async fn several_connections_are_served_at_once() {
    let guest = Guest::start(Way::Subreaper);
    let mut hosts = Vec::new();
    for _ in 0..8 {
        hosts.push(Host::to(&guest).await);
    }
    for (number, host) in hosts.iter().enumerate() {
        let payload = vec![number as u8; 1000];
        assert_eq!(
            host.ask(Ping { payload: payload.clone() }).await.expect("pong").payload,
            payload
        );
    }
}

#[tokio::test]
async fn another_user_is_not_served() {
    if !rustix::process::getuid().is_root() {
        return hivekeep_skip::skip(
            "another_user_is_not_served: needs root to become another user",
        );
    }
    let guest = Guest::start(Way::Subreaper);
    std::fs::set_permissions(guest.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("chmod");
    std::fs::set_permissions(guest.socket(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("chmod");
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                  s.settimeout(20)\nsys.exit(0 if s.recv(1)==b'' else 1)";
    let status = std::process::Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups", "/usr/bin/python3", "-c", script])
        .arg(guest.socket())
        .status();
    match status {
        Ok(status) => assert!(status.success(), "the connection was not closed at once"),
        Err(error) => {
            hivekeep_skip::skip(format_args!("another_user_is_not_served: setpriv: {error}"))
        }
    }
}

#[tokio::test]
async fn an_unknown_request_is_answered_and_the_link_lives() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let mut call = host.call(Ping { payload: vec![] }.into_wire()).await;
    call.reply().await.expect("pong");
    call.id = 4000;
    let mut odd = host.call(Ping { payload: vec![] }.into_wire()).await;
    odd.reply().await.expect("pong");
    odd.send(FrameKind::Request, &[250, 1, 2]).await;
    assert_eq!(odd.reply().await.expect_err("unknown").code, GuestCode::Unsupported);
    host.ask(Ping { payload: vec![] }).await.expect("the link lives");
}

#[tokio::test]
async fn a_sandbox_configures_nothing_that_is_not_its_own_and_says_so() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let before = rustix::system::uname().nodename().to_owned();
    let asked = Configure {
        hostname: "a-new-name".into(),
        clock_unix_ms: Some(1),
        entropy: vec![1; 32],
        grow_root: true,
    };
    let done = host.ask(asked.clone()).await.expect("configured");
    assert_eq!(done.hostname.as_bytes(), before.to_bytes());
    assert_eq!((done.clock_step_ms, done.entropy_bytes), (0, 0));
    assert!(done.grow_error.is_some() && done.root_total_bytes > 0);
    let bad = Configure { hostname: "no name".into(), ..asked };
    assert_eq!(host.ask(bad).await.expect_err("refused").code, GuestCode::Invalid);
    let usage = host.ask(Usage).await.expect("usage");
    assert!(usage.memory_total_bytes > usage.memory_available_bytes);
    assert!(usage.processes > 1 && usage.root_used_bytes <= usage.root_total_bytes);
}

#[tokio::test]
async fn a_shutdown_is_answered_before_the_daemon_goes() {
    let mut guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    host.ask(Shutdown { grace_ms: 1234 }).await.expect("answered");
    assert_eq!(guest.exit_status(), Some(75));
    let order = std::fs::read_to_string(guest.dir.path().join("run/shutdown")).expect("an order");
    assert_eq!(order, "1234");
    drop(shell(""));
}

#[tokio::test]
async fn a_sandbox_never_touches_its_hosts_network() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let asked = SetNetwork {
        mac: [2, 0x68, 10, 213, 4, 5],
        address: [10, 213, 4, 5],
        prefix_len: 16,
        gateway: [10, 213, 0, 1],
        dns: None,
    };
    let wrong = SetNetwork { prefix_len: 31, ..asked.clone() };
    assert_eq!(host.ask(wrong).await.expect_err("refused").code, GuestCode::Invalid);
    assert_eq!(host.ask(asked).await.expect_err("refused").code, GuestCode::Unsupported);
}

#[tokio::test]
async fn a_sandbox_neither_becomes_another_nor_freezes_its_hosts_disk() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let asked = Reidentify {
        token_hash: [1; 32],
        hostname: "another".into(),
        machine_id: "0123456789abcdef".repeat(2),
        instance_id: "copy-1".into(),
        clock_unix_ms: 1,
        entropy: vec![1; 32],
    };
    for wrong in [
        Reidentify { hostname: "a.b".into(), ..asked.clone() },
        Reidentify { machine_id: "0123".into(), ..asked.clone() },
        Reidentify { instance_id: "../x".into(), ..asked.clone() },
        Reidentify { entropy: vec![1; 31], ..asked.clone() },
    ] {
        assert_eq!(host.ask(wrong).await.expect_err("refused").code, GuestCode::Invalid);
    }
    assert_eq!(host.ask(asked).await.expect_err("refused").code, GuestCode::Unsupported);
    let frozen = host.ask(Quiesce { freeze_ms: Some(1) }).await;
    assert_eq!(frozen.expect_err("refused").code, GuestCode::Unsupported);
    let too_long = host.ask(Quiesce { freeze_ms: Some(60_001) }).await;
    assert_eq!(too_long.expect_err("refused").code, GuestCode::Invalid);
    assert!(!host.ask(Thaw).await.expect("nothing to do").was_frozen);
    // The token is still the one it was started with.
    Host::to(&guest).await;
}
