//! Everything at once against one daemon: a hostile guest, hostile clients. Then it is asked whether
//! it lives, is small, serves others at once, and starts again.

use std::{
    io::Write,
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::{Duration, Instant},
};

use hivekeep_mcp_client::blocking::Client;
use serde_json::{Value, json};

use crate::{house::House, leaks};

/// What the daemon may hold at most while it is attacked. Unread answers alone took gigabytes before
/// they were bounded.
const MOST_MEMORY_KIB: u64 = 160 << 10;
/// How soon another session is served, at its best.
const SOON: Duration = Duration::from_secs(1);
const LOOKS: usize = 12;

/// In the guest: output without end on three ways, processes without end, names without end.
const IN_THE_GUEST: [&str; 5] = [
    "yes | head -c 500000000",
    "timeout 5 yes > /dev/console; timeout 5 yes >&2; true",
    "f() { f | f & }; f; sleep 5",
    "cd /root && for i in $(seq 1 20000); do mkdir d 2>/dev/null && cd d || break; done; true",
    "head -c 100000000 /dev/zero | tr '\\0' '\\n'",
];

fn connect(house: &House) -> Option<UnixStream> {
    let stream = UnixStream::connect(house.path().join("run/hivekeep.sock")).ok()?;
    stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a socket");
    Some(stream)
}

/// A line each until the daemon takes no more; nothing is read. The connection is kept open.
fn shout(house: &House, lines: &[Value], most: usize) -> Option<UnixStream> {
    let mut stream = connect(house)?;
    for line in lines.iter().chain(std::iter::repeat(&lines[lines.len() - 1])).take(most) {
        if writeln!(stream, "{line}").is_err() {
            break;
        }
    }
    Some(stream)
}

fn greeted(what: Value) -> Vec<Value> {
    let client = json!({ "name": "evil\u{1b}]0;owned\u{7}", "version": "1" });
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    vec![
        json!({ "door": "mcp" }),
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        what,
    ]
}

fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// Clients that do not read, do not end their lines, do not say anything, or only nonsense.
fn clients(house: &House, end: &AtomicBool) {
    let odd: Value =
        (0..5000).map(|n| (format!("odd{n}"), json!(n))).collect::<serde_json::Map<_, _>>().into();
    let wrong = request("tools/call", json!({ "name": "workspace_create", "arguments": odd }));
    let slow =
        json!({ "name": "exec", "arguments": { "workspace_id": "evil", "command": "sleep 60" } });
    let mut held = Vec::new();
    while !end.load(SeqCst) {
        held.push(shout(house, &greeted(request("tools/list", json!({}))), 5000));
        held.push(shout(house, &greeted(wrong.clone()), 300));
        held.push(shout(house, &greeted(request("tools/call", slow.clone())), 300));
        held.push(shout(house, &[json!("x".repeat(3 << 20))], 1));
        for _ in 0..50 {
            let mut silent = connect(house);
            if let Some(silent) = &mut silent {
                // It may be told to go before it has said this.
                let _hung_up = silent.write_all(b"{\"door\":");
            }
            held.push(silent);
        }
        held.truncate(600);
        if held.len() == 600 {
            held.drain(..300);
        }
    }
    for stream in held.into_iter().flatten() {
        // Hung up by the daemon already.
        let _closed = stream.shutdown(Shutdown::Both);
    }
}

fn guests(house: &House, end: &AtomicBool) {
    while !end.load(SeqCst) {
        for command in IN_THE_GUEST {
            let args = json!({ "workspace_id": "evil", "command": command, "timeout_secs": 20 });
            // Refused or cut, as it may be: the daemon is looked at.
            let _any = house.try_call("exec", args);
        }
    }
}

/// Another client, from its connection to its answer.
fn served(house: &House) -> Duration {
    let begun = Instant::now();
    let socket = house.path().join("run/hivekeep.sock");
    let client = Client::connect("another", &socket).expect("another client gets in");
    client.call("workspace_list", json!({})).expect("an answer");
    begun.elapsed()
}

pub fn an_attacked_daemon_lives_stays_small_serves_others_and_starts_again(mut house: House) {
    house.create("good");
    house.create("evil");
    let (end, pid) = (AtomicBool::new(false), house.pid());
    let attacked = &house;
    let best = std::thread::scope(|scope| {
        scope.spawn(|| clients(attacked, &end));
        scope.spawn(|| guests(attacked, &end));
        let times = (0..LOOKS).map(|_| {
            std::thread::sleep(Duration::from_secs(1));
            assert_eq!(attacked.exec("good", "echo served"), "served\n");
            served(attacked)
        });
        let best = times.min().expect("some");
        end.store(true, SeqCst);
        best
    });
    assert_eq!(house.pid(), pid, "it did not live");
    assert!(best <= SOON, "another session was served after {best:?} at best");
    let peak = house.peak_memory_kib();
    assert!(peak <= MOST_MEMORY_KIB, "it held {} MiB", peak >> 10);
    eprintln!("attacked: at most {} MiB, another session served in {best:?}", peak >> 10);

    house.stop(false);
    house.start();
    house.wait_state("good", "running");
    assert_eq!(house.exec("good", "echo again"), "again\n");
    for name in ["evil", "good"] {
        house.call("workspace_destroy", json!({ "workspace_id": name }));
    }
    leaks::check(&house);
}
