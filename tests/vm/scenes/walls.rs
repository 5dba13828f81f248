//! What keeps a sandbox in: asked for from inside, and told outside.

use std::time::{Duration, Instant};

use serde_json::json;

use super::life;
use crate::house::House;

pub fn a_sandbox_is_walled_in_and_says_how(mut house: House) {
    house.create("w");
    let info = house.call("workspace_info", json!({ "workspace_id": "w" }));
    let confinement = &info["machine"]["confinement"];
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(confinement["users"], if is_root { "own" } else { "shared" }, "{info}");
    // What the host says of its kernel is what the sandbox had of it.
    let had = match confinement["landlock"]["enforced"].as_str() {
        Some("full") => "landlock fully enforced",
        Some("partial") => "landlock partially enforced",
        _ => "landlock not available",
    };
    assert!(log(&house, "stderr").contains(had), "{had}: {info}");
    let checked = house.command().args(["check", "--json"]).output().expect("checked");
    let checked: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    let mut findings = checked["findings"].as_array().expect("findings").iter();
    let users = findings.find(|found| found["what"] == "users of machines").expect("a line");
    assert_eq!(users["ok"], is_root, "{users}");

    let families = "/run/hivekeep/guest selftest-calls | grep ^socket | cut -d' ' -f2 | sort -nu";
    let families = house.exec("w", families);
    for family in families.lines() {
        assert!(["1", "2", "10", "16"].contains(&family), "family {family} is not on the list");
    }
    assert!(families.lines().any(|family| family == "1"), "{families}");
    // Of 256 MiB, half.
    let full =
        "head -c 200000000 /dev/zero > /dev/shm/x 2>/dev/null; wc -c < /dev/shm/x; rm /dev/shm/x";
    assert_eq!(house.exec("w", full).trim(), "134217728");
    let limits = house.exec("w", "cat /proc/self/limits");
    for (name, most) in [("open files", 65_536), ("core file size", 1), ("pending signals", 4096)] {
        let line = limits.lines().find_map(|line| line.strip_prefix(&format!("Max {name} ")));
        let hard = line.and_then(|line| line.split_whitespace().nth(1)).expect("a hard limit");
        assert!(hard.parse::<u64>().is_ok_and(|hard| hard <= most), "{name}: {limits}");
    }
    the_console_cannot_be_taken_back(&mut house);
}

fn the_console_cannot_be_taken_back(house: &mut House) {
    life::kill_guest_daemon(house, "w");
    assert_eq!(house.exec("w", "echo again").trim(), "again");
    let said = says(house, 1);
    let forge = "for n in 1 2; do true > /proc/1/fd/$n; echo forged > /proc/1/fd/$n; \
        chmod 0 /proc/1/fd/$n; dd if=/dev/null of=/proc/1/fd/$n; done 2>/dev/null; true";
    house.exec("w", forge);
    // Said while no daemon reads it, and found by the next.
    let keeper = life::machine(house, "w").as_raw_nonzero();
    house.kill();
    let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
    for pid in children.expect("children").split_whitespace() {
        let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    }
    house.start();
    assert_eq!(house.exec("w", "echo again").trim(), "again");
    let both = says(house, 2);
    assert!(both.starts_with(&said), "{said:?} became {both:?}");
}

/// The console, once process 1 has said so many times that the guest daemon ended.
fn says(house: &House, times: usize) -> String {
    let begun = Instant::now();
    loop {
        let console = log(house, "console");
        if console.matches("the agent ended").count() >= times {
            return console;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{times} times: {console:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn log(house: &House, kind: &str) -> String {
    let logs = house.call("workspace_logs", json!({ "workspace_id": "w", "max_lines": 1000 }));
    logs[kind].as_str().expect("text").to_owned()
}
