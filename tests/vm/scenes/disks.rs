//! Backups with disks, and machines that start on what was restored from them.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::json;

use super::kept::{Beside, answer, run, said};
use crate::{
    house::{House, PATIENCE, open_to_all},
    leaks,
};

/// Names of the snapshots that backups made.
fn of_backups(house: &House, workspace: &str) -> Vec<String> {
    let list = json!({ "workspace_id": workspace, "action": "list" });
    let list = house.call("snapshot", list);
    let rows = list["snapshots"].as_array().expect("a list").iter();
    let names = rows.map(|row| row["name"].as_str().expect("a name").to_owned());
    names.filter(|name| name.starts_with("backup-")).collect()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Restores where the image folder has nothing.
fn brings_its_base(house: &House, file: &str) {
    let home = tempfile::tempdir().expect("a folder");
    let images = home.path().join("other-images");
    let mut restore = house.command();
    restore.env("HIVEKEEP_HOME", home.path()).env("HIVEKEEP_WORKSPACE__IMAGE_DIR", &images);
    let restored = restore.args(["restore", file]).output().expect("the program runs");
    assert!(said(&restored).contains("disks: 2 (one, two)"), "{}", said(&restored));
    let objects = std::fs::read_dir(images.join("objects")).expect("a folder").flatten();
    let bases: Vec<_> = objects.map(|object| object.path().join("rootfs.ext4")).collect();
    assert!(matches!(&*bases, [base] if base.is_file()), "{bases:?}");
    // Another one beside it: what is there is not mixed.
    std::fs::remove_dir_all(home.path().join("state/journal")).expect("removed");
    let refused = said(&run(house, home.path(), &["restore", file]));
    assert!(refused.contains("is there already"), "{refused}");
}

pub fn disks_come_back_as_they_were_frozen(mut house: House) {
    house.create("one");
    house.create("two");
    house.exec("one", "echo running > /root/file && sync");
    house.exec("two", "echo stopped > /root/file && sync");
    let snap = |house: &House, name: &str, memory: bool| {
        let request = json!({ "workspace_id": "one", "action": "create", "name": name,
            "include_memory": memory });
        house.call("snapshot", request)
    };
    snap(&house, "before", true);
    house.call("workspace_stop", json!({ "workspace_id": "two" }));
    let writes = "i=0; while true; do i=$((i+1)); echo $i >> /root/log; done";
    house.call(
        "exec_background",
        json!({ "workspace_id": "one", "action": "start", "command": writes }),
    );
    let file = house.path().join("kept.tar.zst");
    let file = file.to_str().expect("UTF-8");
    let home = house.path().to_owned();
    let packed = answer(&house, &home, &["backup", file, "--disks", "--json"]);
    assert_eq!(packed["disks"]["kept"].as_array().map(Vec::len), Some(2), "{packed}");
    assert_eq!(packed["disks"]["left_out"], json!([]), "{packed}");
    assert_eq!(packed["disks"]["memories_left_out"], 1, "{packed}");
    for name in ["one", "two"] {
        wait_until("the backup's snapshots go", || of_backups(&house, name).is_empty());
    }
    let lines = |text: String| text.trim().parse::<u64>().expect("a number");
    let count = "wc -l < /root/log";
    let now = lines(house.exec("one", count));

    let beside = tempfile::Builder::new().prefix("hk").tempdir_in("/tmp").expect("a folder");
    open_to_all(beside.path());
    let restored = answer(&house, beside.path(), &["restore", file, "--json"]);
    assert_eq!(restored["disks"]["kept"].as_array().map(Vec::len), Some(2), "{restored}");
    brings_its_base(&house, file);
    let mut other = Beside::start(&house, beside.path());
    // Memory is not in it, which costs nothing of what is.
    let to = ["workspace_id=one", "action=restore", "name=before"];
    let refused = other.refused("snapshot", &to);
    assert!(refused.contains("snapshot_memory_missing"), "{refused}");
    let fork = ["workspace_id=one", "snapshot_name=before", "new_name=fork"];
    let refused = other.refused("workspace_fork", &fork);
    assert!(refused.contains("snapshot_memory_missing"), "{refused}");
    for (name, content) in [("one", "running\n"), ("two", "stopped\n")] {
        let id = format!("workspace_id={name}");
        other.call("workspace_start", &[&id]);
        let read = other.call("exec", &[&id, "command=cat /root/file"]);
        assert_eq!(read["stdout"], content, "{read}");
        let list = other.call("snapshot", &[&id, "action=list"]);
        assert!(!list.to_string().contains("backup-"), "{list}");
    }
    // The log is as it was frozen: whole up to one moment before the backup was done.
    let kept = other.call("exec", &["workspace_id=one", &format!("command={count}")]);
    let kept = lines(kept["stdout"].as_str().expect("text").to_owned());
    assert!((1..=now).contains(&kept), "{kept} lines of {now}");
    let whole = "awk '$1 != NR { bad = 1 } END { exit bad }' /root/log";
    let read = other.call("exec", &["workspace_id=one", &format!("command={whole}")]);
    assert_eq!(read["exit_code"], 0, "{read}");
    other.call("exec", &["workspace_id=one", "command=echo other > /root/file"]);
    for name in ["one", "two"] {
        other.call("workspace_destroy", &[&format!("workspace_id={name}")]);
    }
    other.stop();
    drop(other);

    // The first daemon's machines went on, and nothing of theirs is gone.
    assert!(lines(house.exec("one", count)) > now);
    assert_eq!(house.exec("one", "cat /root/file"), "running\n");
    house.call("workspace_start", json!({ "workspace_id": "two" }));
    assert_eq!(house.exec("two", "cat /root/file"), "stopped\n");

    // Without a daemon nobody freezes; a daemon that was killed lets go of the snapshots later.
    house.kill();
    let again = format!("{file}.2");
    let refused = said(&run(&house, &home, &["backup", &again, "--disks"]));
    assert!(refused.contains("start the daemon first"), "{refused}");
    house.start_armed("snapshot.after_made=return(kill)");
    let killed = run(&house, &home, &["backup", &again, "--disks"]);
    assert!(!killed.status.success(), "{}", said(&killed));
    assert!(!Path::new(&again).exists());
    house.wait_for_death();
    house.start();
    let state = std::fs::read_dir(home.join("state")).expect("a folder").flatten();
    let mut names = state.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert!(!names.any(|name| name.starts_with(".hivekeep-backup-")));
    for name in ["one", "two"] {
        wait_until("a killed backup's snapshots go", || of_backups(&house, name).is_empty());
        house.call("workspace_destroy", json!({ "workspace_id": name }));
    }
    leaks::check(&house);
}

pub fn a_sandboxs_disk_is_left_out_by_name(house: House) {
    house.create("one");
    let file = house.path().join("kept.tar.zst");
    let file = file.to_str().expect("UTF-8");
    let home = house.path().to_owned();
    let packed = answer(&house, &home, &["backup", file, "--disks", "--json"]);
    assert_eq!(packed["disks"]["kept"], json!([]), "{packed}");
    assert_eq!(packed["disks"]["left_out"][0]["name"], "one", "{packed}");
    assert_eq!(packed["disks"]["left_out"][0]["code"], "snapshot_unsupported", "{packed}");
    let beside = tempfile::tempdir().expect("a folder");
    let restored = run(&house, beside.path(), &["restore", file]);
    assert!(said(&restored).contains("left out: the disk of one"), "{}", said(&restored));
    assert_eq!(house.exec("one", "echo there"), "there\n");
    house.call("workspace_destroy", json!({ "workspace_id": "one" }));
    leaks::check(&house);
}
