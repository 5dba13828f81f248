//! Groups of the host's programs in the unified hierarchy, which this host may not have: in a machine, whose kernel
//! has it, the daemon runs once more, with sources that want more than they may have.

use std::{fs, path::Path, process::Command, thread, time::Instant};

use serde_json::json;

use crate::{
    house::{House, PATIENCE},
    needs::{GUEST, named},
};

/// Each process of `greedy` holds 24 MiB, which nobody takes from it; `many` starts more than it may. Neither speaks MCP.
const CONFIG: &str = r#"
[source.servers.greedy]
command = ["/bin/sh", "-c", "for i in 1 2 3 4; do dd if=/dev/zero bs=24M count=1 | sleep 60 & done; wait"]
memory_mb = 64
[source.servers.modest]
command = ["/bin/sh", "-c", "dd if=/dev/zero bs=24M count=1 | sleep 600 & wait"]
memory_mb = 64
start_timeout_secs = 600
[source.servers.many]
command = ["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; wait"]
max_processes = 8
"#;
const IN_IT: &str =
    "export PATH=/opt/bin:$PATH HIVEKEEP_HOME=/root/home HIVEKEEP_CONFIG=/opt/config.toml; ";

pub fn a_source_takes_no_more_than_its_group_has(house: House) {
    let wanted = json!({ "name": "w", "memory_mb": 1024, "disk_gb": 4 });
    house.call("workspace_create", wanted);
    bring_in(&house);
    house.exec("w", "tar -xf /tmp/inside.tar -C / && rm /tmp/inside.tar");
    let daemon = format!("{IN_IT} mkdir /root/home && exec hivekeep daemon");
    let job = json!({ "workspace_id": "w", "action": "start", "command": daemon });
    house.call("exec_background", job);
    let begun = Instant::now();
    let look = format!("{IN_IT} hivekeep call source_list 2>&1 || true");
    loop {
        let listed = house.exec("w", &look);
        let ended = listed.contains("took more memory together than it may have");
        if ended && listed.contains("can't fork: Resource temporarily unavailable") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{listed}");
        thread::sleep(std::time::Duration::from_millis(200));
    }
    // The one that keeps to its bound is where it was, in a group that holds it.
    let groups = "for it in /sys/fs/cgroup/hivekeep-*/program-*; do echo $(cat $it/memory.max $it/pids.current); done";
    let (held, groups) = (format!("{} ", 64 << 20), house.exec("w", groups));
    let lives = |line: &str| line.strip_prefix(&held).is_some_and(|pids| pids != "0");
    assert!(groups.lines().any(lives), "{groups}");
    let modest = house.exec("w", "ps | grep -c 'sleep 60[0]'");
    assert_ne!(modest.trim(), "0");
}

/// Puts the daemon, what it needs and its configuration where a transfer takes them from, and transfers them.
fn bring_in(house: &House) {
    let folder = house.path().join("inside");
    let put = |from: &Path, to: &str| {
        let to = folder.join(to);
        fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        fs::copy(from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    };
    let ours = Path::new(env!("CARGO_BIN_EXE_hivekeep"));
    let bwrap = Command::new("sh").args(["-c", "command -v bwrap"]).output().expect("sh runs");
    let bwrap = String::from_utf8(bwrap.stdout).expect("a path");
    let bwrap = Path::new(bwrap.trim());
    put(ours, "opt/bin/hivekeep");
    put(bwrap, "usr/bin/bwrap");
    put(&named(GUEST), "opt/lib/hivekeep/hivekeep-guest");
    for program in [ours, bwrap] {
        let told = Command::new("ldd").arg(program).output().expect("ldd runs");
        for word in String::from_utf8_lossy(&told.stdout).split_whitespace() {
            if word.starts_with('/') {
                // What other systems have directly below the root is in /usr there.
                let to = word.strip_prefix("/usr").unwrap_or(word);
                put(Path::new(word), &format!("usr{to}"));
            }
        }
    }
    fs::write(folder.join("opt/config.toml"), CONFIG).expect("written");
    let packed = house.path().join("state/transfers/inside.tar");
    let tar = Command::new("tar").arg("-cf").arg(packed).arg("-C").arg(&folder).arg(".").status();
    assert!(tar.expect("tar runs").success());
    let upload = json!({ "workspace_id": "w", "direction": "upload", "host_path": "inside.tar", "guest_path": "/tmp/inside.tar" });
    house.call("file_transfer", upload);
}
