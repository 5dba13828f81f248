//! Volumes of virtual machines: served to guests that are not trusted, beside sandboxes and the
//! host, by processes that outlive daemons and no machine.

use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use super::{crash::settled, volumes::nothing_is_left};
use crate::{house::House, leaks};

/// The daemon's tools see files of a guest at once; what a guest knew, it believes for a second.
const BELIEF: std::time::Duration = std::time::Duration::from_millis(1_500);

fn volume(path: &str, read_only: bool) -> Value {
    json!([{ "volume": "v", "path": path, "read_only": read_only }])
}

fn create(house: &House, name: &str, isolation: &str, volumes: Value) {
    let args = json!({ "name": name, "isolation": isolation, "volumes": volumes });
    house.call("workspace_create", args);
}

/// Waits until so many servers run.
fn servers(house: &House, count: usize) -> Vec<i32> {
    let begun = std::time::Instant::now();
    loop {
        let found = leaks::volume_servers(house.path());
        if found.len() == count {
            return found;
        }
        assert!(begun.elapsed().as_secs() < 30, "{found:?} serve, not {count}\n{}", house.stderr());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

pub fn a_volume_is_shared_and_outlives_machines(mut house: House) {
    let request = json!({ "label": "v", "size_limit_bytes": 16 << 20 });
    house.call("aegis.volume.create", request);
    create(&house, "m", "vm", volume("/data/with blank", false));
    create(&house, "s", "sandbox", volume("/v", false));

    // Root of each is root of the volume, whoever wrote.
    house.exec("m", "cd '/data/with blank' && mkdir d && echo from-m > d/a && chmod 600 d/a");
    assert_eq!(house.exec("s", "cat /v/d/a; stat -c %u:%a /v/d/a /v/d"), "from-m\n0:600\n0:755\n");
    house.exec("s", "echo from-s > /v/b && chmod 600 /v/b && echo more >> /v/d/a && rm -f /v/none");
    std::thread::sleep(BELIEF);
    let seen = house.exec("m", "cd '/data/with blank' && cat b d/a && stat -c %u:%a b");
    assert_eq!(seen, "from-s\nfrom-m\nmore\n0:600\n");
    let read = json!({ "volume_id": "v", "path": "d/a" });
    assert_eq!(house.call("aegis.file.read", read)["content"], "from-m\nmore\n");
    // So are its other users, on either side, and none of the host's.
    house.exec("m", "cd '/data/with blank' && mkdir o && chown 1000:1001 o");
    let by = |name: &str, line: &str| {
        let args = json!({ "workspace_id": name, "command": line, "user": "1000:1001" });
        house.call("exec", args)["stdout"].as_str().expect("text").to_owned()
    };
    by("m", "cd '/data/with blank/o' && echo by-m > m && chmod 600 m");
    assert_eq!(
        by("s", "cat /v/o/m; echo by-s > /v/o/s; stat -c %u:%g /v/o/s"),
        "by-m\n1000:1001\n"
    );
    assert_eq!(house.exec("s", "cat /v/o/m; rm /v/o/m"), "by-m\n");
    std::thread::sleep(BELIEF);
    assert_eq!(by("m", "cd '/data/with blank/o' && cat s && stat -c %u:%g s"), "by-s\n1000:1001\n");
    let volumes = house.path().join("state/volumes").read_dir().expect("a folder").flatten();
    let mut made = volumes.filter_map(|it| it.path().join("mounted/o/s").metadata().ok());
    assert!(made.next().is_some_and(|made| made.uid() > 65_536), "it is a user's of the host");

    // Its size holds for a guest.
    let fill = "dd if=/dev/zero of='/data/with blank/big' bs=1M count=64 2>&1; rm /data/*/big";
    let filled = house.exec("m", fill);
    assert!(filled.contains("No space left on device"), "{filled}");

    // What serves a machine that may read can do no more, whatever its root does.
    create(&house, "r", "vm", volume("/v", true));
    let tried = house.exec("r", "cat /v/b; mount -o remount,rw /v; echo x > /v/b || echo refused; rm -f /v/b 2>&1; cat /v/b");
    assert!(tried.starts_with("from-s\n") && tried.contains("refused\n"), "{tried}");
    assert!(tried.ends_with("from-s\n"), "{tried}");

    // Memory and volumes exclude each other; a disk does not pretend to have the files.
    let with_memory = json!({ "action": "create", "name": "all", "include_memory": true });
    let snapshot = |more: Value| {
        let mut args = json!({ "workspace_id": "r" });
        args.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        args
    };
    assert_eq!(house.refused("snapshot", snapshot(with_memory)).code, "snapshot_unsupported");
    let branch = json!({ "workspace_id": "r" });
    assert_eq!(house.refused("workspace_branch", branch).code, "snapshot_unsupported");
    let disk = json!({ "action": "create", "name": "disk", "include_memory": false });
    let made = house.call("snapshot", snapshot(disk));
    assert_eq!(made["volumes_left_out"].as_array().map(Vec::len), Some(1), "{made}");

    // Machine and server go on without a daemon, and the next one takes both up.
    let before = servers(&house, 4);
    let count = "for i in $(seq 60); do echo $i >> '/data/with blank/log'; sleep 0.1; done";
    let job = json!({ "workspace_id": "m", "action": "start", "command": count });
    house.call("exec_background", job);
    house.kill();
    house.start();
    house.wait_state("m", "running");
    house.wait_state("r", "running");
    house.wait_state("s", "running");
    let lines = || house.exec("s", "cat /v/log | wc -l").trim().to_owned();
    let begun = std::time::Instant::now();
    while lines() != "60" {
        assert!(begun.elapsed().as_secs() < 60, "the job wrote {} lines", lines());
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert_eq!(servers(&house, 4), before, "they were started anew");
    house.exec("m", "echo again > '/data/with blank/again'");

    // A creation that dies with the daemon takes its server along.
    house.kill();
    house.start_armed("start.after_launch=return(kill)");
    let args = json!({ "name": "half", "isolation": "vm", "volumes": volume("/v", false) });
    assert!(matches!(house.try_call("workspace_create", args), Err(None)));
    house.wait_for_death();
    house.start();
    assert_eq!(settled(&house, "half"), None, "not undone");
    house.wait_state("r", "running");
    let both = servers(&house, 4);

    // One whose server dies is told to have crashed, and goes on with a new start.
    house.call("workspace_destroy", json!({ "workspace_id": "m" }));
    let of_r = servers(&house, 2);
    assert!(of_r.iter().all(|pid| both.contains(pid)), "{of_r:?} of {both:?}");
    let pid = rustix::process::Pid::from_raw(of_r[0]).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    house.wait_state("r", "crashed");
    let info = house.call("workspace_info", json!({ "workspace_id": "r" }));
    assert!(info["reason"].as_str().is_some_and(|why| why.contains("virtiofsd")), "{info}");
    servers(&house, 0);
    let start = json!({ "workspace_id": "r", "volumes": volume("/data", false) });
    house.call("workspace_start", start);
    let rest = house.exec("r", "cat /data/again /data/b; echo once-more > /data/b; ln -s /etc /t");
    assert_eq!(rest, "again\nfrom-s\n");
    house.call("workspace_stop", json!({ "workspace_id": "r" }));
    servers(&house, 0);
    assert_eq!(house.exec("s", "cat /v/b"), "once-more\n");

    // A link that a guest lays in the way of a mount leads nowhere.
    let start = json!({ "workspace_id": "r", "volumes": volume("/t/x", false) });
    let refused = house.refused("workspace_start", start);
    assert!(refused.text.contains("a volume's folder"), "{}", refused.text);
    servers(&house, 0);
    for name in ["r", "s"] {
        house.call("workspace_destroy", json!({ "workspace_id": name }));
    }
    house.call("aegis.volume.delete", json!({ "volume_id": "v" }));
    nothing_is_left(&house, "destroyed");
    assert!(leaks::loops(house.path()).is_empty());
}
