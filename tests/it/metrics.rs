//! Metrics of a running daemon: counted once through `kill -9` at each point, exported, and written to a
//! real InfluxDB 1.6 that is killed in the middle.

mod influxd;

use serde_json::{Value, json};

use crate::{home::Home, wire::Wire};
use influxd::Influxd;

/// Calls that are on their way at once; a session has half of a target's places.
const AT_ONCE: usize = 8;

fn home() -> Home {
    Home::new()
        .with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false")
        .with("HIVEKEEP_DAEMON__FREE_SPACE_FLOOR_MB", "0")
}

/// Records numbered metrics.
fn record(wire: &mut Wire, numbers: std::ops::Range<i64>) {
    let numbers: Vec<i64> = numbers.collect();
    for some in numbers.chunks(AT_ONCE) {
        for id in some {
            let args = json!({
                "type": format!("kind {}", id % 3), "repo": "a,b=c", "agent_id": "x\\",
                "data": { "n": id, "api_key": "0123456789abcdef" },
            });
            let params = json!({ "name": "metrics_record", "arguments": args });
            wire.send(
                &json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }),
            );
        }
        for _ in some {
            let answer = wire.next_answer();
            assert_eq!(answer["result"]["isError"], false, "{answer}");
        }
    }
}

fn total(home: &Home) -> u64 {
    home.json(&["metrics", "--since", "365d", "--json"])["total"].as_u64().expect("a number")
}

#[test]
fn metrics_are_counted_exported_and_kept_through_a_kill() {
    let home = home();
    let mut daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    record(&mut wire, 1..31);
    drop(wire);
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let _again = home.daemon();
    let found = home.json(&["call", "metrics_query", "-a", "since=24h", "--json"]);
    assert_eq!(found["total"], 30, "{found}");
    assert_eq!(found["by_repo"], json!([{ "key": "a,b=c", "count": 30 }]));
    let keys: Vec<_> =
        found["by_type"].as_array().expect("rows").iter().map(|it| &it["key"]).collect();
    assert_eq!(keys, ["kind 0", "kind 1", "kind 2"], "ties by name");
    assert_eq!(found["events"].as_array().map(Vec::len), Some(10));

    let lines = home.ok(&["metrics", "export", "--since", "30d"]);
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut numbers: Vec<_> = lines.iter().filter_map(|it| it["data"]["n"].as_i64()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..31).collect::<Vec<_>>());
    assert!(lines.iter().all(|it| it["data"]["api_key"] == "[redacted]"), "{}", lines[0]);
    let table = home.ok(&["metrics"]);
    assert!(table.contains("kind 0") && table.contains("30"), "{table}");
    let refused = home.run(&["metrics", "--since", "366d"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("longer than 365 days"));
}

#[test]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs failpoints: `cargo xtask t it`")]
fn a_record_that_is_durable_is_counted_once_whoever_dies_before_the_answer() {
    let mut home = home();
    for round in 1..=3 {
        home = home.with("FAILPOINTS", "metrics.recorded=2*off->return(kill)");
        let mut daemon = home.daemon();
        let mut wire = Wire::start(&home, &["--no-spawn"]);
        wire.initialize();
        record(&mut wire, 1..2);
        record(&mut wire, 2..3);
        let args = json!({ "name": "metrics_record", "arguments": { "type": "last" } });
        wire.send(&json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": args }));
        daemon.wait();
        drop(wire);
        home = home.with("FAILPOINTS", "");
        let _again = home.daemon();
        assert_eq!(total(&home), 3 * round);
    }
}

/// 5,000 records, while the server is killed and the daemon dies between a write and its position.
#[test]
fn influxdb_has_each_of_5000_records_once_though_both_are_killed_in_the_middle() {
    let Some(mut server) = Influxd::start() else {
        return hivekeep_skip::skip("there is no influxd; `apt-get install influxdb` brings it");
    };
    server.query("CREATE DATABASE hivekeep");
    let url = server.url();
    let mut home = home()
        .with("HIVEKEEP_METRICS__INFLUX__URL", &url)
        .with("HIVEKEEP_METRICS__INFLUX__DATABASE", "hivekeep");
    if cfg!(feature = "failpoints") {
        home = home.with("FAILPOINTS", "metrics.influx_written=2*off->return(kill)");
    }
    let mut daemon = home.daemon();
    if cfg!(feature = "failpoints") {
        // It dies when the third batch is written and its position is not.
        while daemon.runs() {
            let args = ["call", "metrics_record", "-a", "type=kind 0", "-a", "repo=a,b=c"];
            let more = ["-a", "agent_id=x\\", "-a", "data={\"n\": 0}"];
            let _may_find_no_daemon = home.run(&[&args[..], &more].concat());
        }
        home = home.with("FAILPOINTS", "");
    } else {
        let mut wire = Wire::start(&home, &["--no-spawn"]);
        wire.initialize();
        record(&mut wire, 1..1_000);
        daemon.signal(rustix::process::Signal::KILL);
    }
    daemon.wait();
    let again = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    let before = i64::try_from(total(&home)).expect("few");
    record(&mut wire, 10_000..10_000 + 2_000);
    server.kill();
    record(&mut wire, 20_000..20_000 + 1_000);
    server.again();
    record(&mut wire, 30_000..30_000 + (5_000 - before - 3_000));
    assert_eq!(total(&home), 5_000);
    crate::home::wait_until("all are there", || server.count() == 5_000);
    let numbered =
        "SELECT count(d) FROM (SELECT distinct(n_n) AS d FROM hivekeep WHERE n_n > 9999)";
    let distinct = server.query_in(numbered);
    assert!(distinct.contains(&format!(",{}]", 5_000 - before)), "{distinct}");
    let odd = server
        .query_in("SELECT count(value) FROM hivekeep WHERE repo = 'a,b=c' AND agent_id = 'x%5C'");
    assert!(odd.contains(",5000]"), "{odd}");
    drop(again);
    let _third = home.daemon();
    assert_eq!(server.count(), 5_000, "nothing twice");
}
