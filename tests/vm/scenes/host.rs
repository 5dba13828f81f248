//! Bad days of the host: its disk is full, or it is slow. Its machines outlive both.

use std::{io::Write, path::Path, thread::sleep, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::{house::House, leaks};

/// Of the file system that everything is on.
pub const DISK: &str = "512m";

const BOOT_ID: &str = "cat /proc/sys/kernel/random/boot_id";

fn free_bytes(path: &Path) -> u64 {
    let fs = rustix::fs::statvfs(path).expect("looked at");
    fs.f_bavail * fs.f_frsize
}

pub fn a_full_disk_stops_machines_until_there_is_room(mut house: House) {
    for name in ["v", "q"] {
        house.create(name);
    }
    let boots = ["v", "q"].map(|name| house.exec(name, BOOT_ID));
    let writes = "i=0; while :; do i=$((i+1)); echo $i >> /root/log; sync; sleep 0.2; done";
    let start = |house: &House, name: &str, command: &str| {
        let args = json!({ "workspace_id": name, "action": "start", "command": command });
        house.call("exec_background", args);
    };
    start(&house, "q", writes);
    // Of what is left v wants twice as much as there is, until the filler goes.
    let filler = house.path().join("filler");
    let left = 64 << 20;
    let taken = free_bytes(house.path()).saturating_sub(left);
    assert!(taken > 2 * left, "the disk is too small for this test: {taken} bytes");
    let mut file = std::fs::File::create(&filler).expect("made");
    for _ in 0..taken >> 20 {
        file.write_all(&[0; 1 << 20]).expect("written");
    }
    drop(file);
    start(
        &house,
        "v",
        "dd if=/dev/zero of=/root/x bs=1M count=128 oflag=direct; echo $? > /root/ended",
    );
    house.wait_state("v", "host_disk_full");
    let asked = house.refused("exec", json!({ "workspace_id": "v", "command": "true" }));
    assert_eq!(asked.code, "host_disk_full", "{}", asked.text);
    let made = house.refused("workspace_create", json!({ "name": "more" }));
    assert_eq!(made.code, "host_disk_full", "{}", made.text);
    // The journal has a reserve, so the daemon lives, and starts.
    house.call("set_env", json!({ "workspace_id": "q", "vars": { "DAY": "bad" } }));
    house.kill();
    house.start();
    house.wait_state("v", "host_disk_full");

    std::fs::remove_file(&filler).expect("removed");
    for (name, boot) in ["v", "q"].into_iter().zip(&boots) {
        house.wait_state(name, "running");
        assert_eq!(&house.exec(name, BOOT_ID), boot, "{name} was rebooted");
    }
    let ended =
        "for i in $(seq 600); do test -s /root/ended && break; sleep 0.1; done; cat /root/ended";
    assert_eq!(house.exec("v", ended).trim(), "0", "a write was lost");
    let gaps = "awk '$1 != NR { print NR; exit }' /root/log";
    assert_eq!(house.exec("q", gaps), "", "lines were lost");
    let days = house.exec("q", "echo $DAY");
    assert_eq!(days.trim(), "bad", "what was acknowledged on the full disk is not there");
    leaks::check(&house);
}

pub fn a_slow_machine_is_no_dead_one(mut house: House) {
    house.create("w");
    let boot = house.exec("w", BOOT_ID);
    let info = house.call("workspace_info", json!({ "workspace_id": "w" }));
    let number = info["machine"]["pid"].as_i64().expect("a pid");
    let pid = Pid::from_raw(i32::try_from(number).expect("a pid")).expect("a pid");
    kill_process(pid, Signal::STOP).expect("stopped");
    house.kill();
    house.start();
    // Longer than one question to it may take, and the next.
    sleep(Duration::from_secs(7));
    assert_eq!(house.state("w"), "starting");
    kill_process(pid, Signal::CONT).expect("continued");
    house.wait_state("w", "running");
    assert_eq!(house.exec("w", BOOT_ID), boot, "it was rebooted");
    let info = house.call("workspace_info", json!({ "workspace_id": "w" }));
    assert_eq!(info["machine"]["pid"].as_i64(), Some(number));
    leaks::check(&house);
}
