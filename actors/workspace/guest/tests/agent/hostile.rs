//! Whatever comes over the link, the daemon goes on.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use hivekeep_protocol::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::client::{Host, hello, shell};
use crate::guest::{Guest, Way};

/// Sends bytes behind a handshake (or instead of one), waits for nothing.
fn throw(guest: &Guest, shake: bool, bytes: &[u8]) {
    let mut stream = UnixStream::connect(guest.socket()).expect("connect");
    stream.set_write_timeout(Some(Duration::from_secs(5))).expect("timeout");
    stream.set_read_timeout(Some(Duration::from_millis(20))).expect("timeout");
    if shake {
        stream.write_all(&sync_preamble([1; 16])).expect("preamble");
        let payload = encode(&hello()).expect("hello");
        let hello = Frame { kind: FrameKind::Hello, id: 0, payload };
        stream.write_all(&hello.to_bytes()).expect("hello");
    }
    let _ = stream.write_all(bytes);
    let _ = stream.read(&mut [0; 4096]);
}

fn alive(runtime: &tokio::runtime::Runtime, guest: &Guest) {
    runtime.block_on(async {
        let host = Host::to(guest).await;
        assert_eq!(host.welcome.daemon_starts, 1, "the daemon was restarted");
        host.ask(Ping { payload: vec![1] }).await.expect("pong");
    });
}

fn some_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..64),
        (0u8..20, proptest::collection::vec(any::<u8>(), 0..64)).prop_map(|(kind, rest)| [
            vec![kind],
            rest
        ]
        .concat()),
        Just(encode(&shell("echo x").into_wire()).expect("a request")),
        Just(
            encode(&ReadFile { path: "/dev/zero".into(), offset: 0, limit: None }.into_wire())
                .expect("a request")
        ),
        Just(
            encode(
                &JobPoll { job_id: "x".into(), stdout_from: 9, stderr_from: 0, max_bytes: 1 }
                    .into_wire()
            )
            .expect("a request")
        ),
    ];
    let kinds = [
        FrameKind::Hello,
        FrameKind::Welcome,
        FrameKind::Request,
        FrameKind::Request,
        FrameKind::Reply,
        FrameKind::Data,
        FrameKind::End,
        FrameKind::Cancel,
        FrameKind::Credit,
        FrameKind::Event,
    ];
    (proptest::sample::select(kinds.to_vec()), 0u32..4, payload)
        // A shutdown is an order that a host may give.
        .prop_filter("no shutdown", |(kind, _, payload)| {
            !(*kind == FrameKind::Request && matches!(decode(payload), Ok(ToGuest::Shutdown(_))))
        })
        .prop_filter("no commands of chance", |(kind, _, payload)| {
            let asked = decode::<ToGuest>(payload);
            let writes = matches!(
                &asked,
                Ok(ToGuest::JobStart(_)
                    | ToGuest::WriteFile(_)
                    | ToGuest::EditFile(_)
                    | ToGuest::RunFileOperation(_))
            );
            let runs =
                matches!(&asked, Ok(ToGuest::RunCommand(e)) if e.argv != Argv::Shell("echo x".into()));
            *kind != FrameKind::Request || !(writes || runs)
        })
        .prop_map(|(kind, id, payload)| Frame { kind, id, payload }.to_bytes())
}

#[test]
fn random_and_mutated_frames_never_end_the_daemon() {
    let guest = Guest::start(Way::Subreaper);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let frames = proptest::collection::vec(some_frame(), 0..12);
    let noise = proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6);
    let mut runner =
        TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(any::<bool>(), frames, noise), |(shake, frames, noise)| {
        let mut bytes = frames.concat();
        for (index, byte) in noise {
            // Payload bytes only: a changed one could spell an order to write a file.
            if !bytes.is_empty() {
                let at = index.index(bytes.len()).min(HEADER_LEN - 1);
                bytes[at] = byte;
            }
        }
        throw(&guest, shake, &bytes);
        Ok(())
    });
    outcome.expect("no failing case");
    alive(&runtime, &guest);
}

#[test]
fn plain_noise_never_ends_the_daemon() {
    let guest = Guest::start(Way::Subreaper);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut runner =
        TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
    let noise = proptest::collection::vec(any::<u8>(), 0..3000);
    let outcome = runner.run(&(any::<bool>(), noise), |(shake, bytes)| {
        throw(&guest, shake, &bytes);
        Ok(())
    });
    outcome.expect("no failing case");
    alive(&runtime, &guest);
}

#[test]
fn silent_strangers_do_not_lock_the_host_out() {
    let guest = Guest::start(Way::Subreaper);
    let silent: Vec<UnixStream> =
        (0..8).map(|_| UnixStream::connect(guest.socket()).expect("connect")).collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // They are dropped when their time for the handshake is over.
    alive(&runtime, &guest);
    drop(silent);
}
