//! Volumes of sandboxes on a real host: bytes that outlive machines, sizes that hold, and a daemon that
//! dies at each point.

use std::{os::unix::fs::MetadataExt, path::Path, process::Command};

use serde_json::{Value, json};

use super::crash::{die_at, settled};
use crate::{house::House, leaks};

/// What an unused volume is unmounted after at once, so that a test need not wait for it.
pub const CONFIG: &str = "[volume]\nidle_unmount_secs = 0";

fn make(house: &House, label: &str) -> String {
    let args = json!({ "label": label, "size_limit_bytes": 16 << 20 });
    house.call("aegis.volume.create", args)["volume_id"].as_str().expect("an id").to_owned()
}

fn with(name: &str, volumes: Value) -> Value {
    json!({ "name": name, "volumes": volumes })
}

fn labels(house: &House) -> Vec<String> {
    let listed = house.call("aegis.volume.list", json!({}));
    let rows = listed["volumes"].as_array().expect("a list").iter();
    rows.map(|row| row["label"].as_str().expect("a label").to_owned()).collect()
}

fn read(house: &House, path: &str) -> String {
    let args = json!({ "volume_id": "v", "path": path });
    house.call("aegis.file.read", args)["content"].as_str().expect("text").to_owned()
}

/// Every mount, loop device and folder belongs to a listed volume.
pub fn nothing_is_left(house: &House, point: &str) {
    let listed = house.call("aegis.volume.list", json!({}));
    let rows = listed["volumes"].as_array().expect("a list").iter();
    let known: Vec<_> = rows.map(|row| row["id"].as_str().expect("an id").to_owned()).collect();
    let folders = house.path().join("state/volumes").read_dir().expect("a folder").flatten();
    let folders = folders.map(|folder| folder.path().to_string_lossy().into_owned());
    for place in folders.chain(leaks::mounts(house.path())).chain(leaks::loops(house.path())) {
        assert!(known.iter().any(|id| place.contains(id.as_str())), "{point}: {place}: {known:?}");
    }
    leaks::check(house);
}

/// As a reboot of the host leaves it.
fn unmounted(house: &House, id: &str) {
    let folder = house.path().join(format!("state/volumes/{id}/mounted"));
    let status = Command::new("umount").arg(&folder).status().expect("umount runs");
    assert!(status.success(), "{} is not mounted", folder.display());
}

pub fn bytes_outlive_workspaces_and_daemons(mut house: House) {
    let id = make(&house, "v");
    house.call("workspace_create", with("w", json!([{ "volume": "v", "path": "/data/deep" }])));
    house.exec("w", "echo from-w > /data/deep/a && chmod 600 /data/deep/a && mkdir /data/deep/d");
    assert_eq!(read(&house, "a"), "from-w\n");
    // What the host writes is the sandbox's to change, and the other way round.
    let file = json!({ "volume_id": id, "path": "d/b", "content": "from-host" });
    house.call("aegis.file.write", file);
    let seen = house.exec(
        "w",
        "cat /data/deep/d/b && echo more >> /data/deep/d/b && stat -c %u /data/deep/d/b",
    );
    assert_eq!(seen.trim(), "from-host0");
    assert_eq!(read(&house, "d/b"), "from-hostmore\n");

    // The size holds, inside and on the host.
    let fill = "dd if=/dev/zero of=/data/deep/big bs=1M count=64 2>&1; stat -c %s /data/deep/big";
    let filled = house.exec("w", fill);
    assert!(filled.contains("No space left on device"), "{filled}");
    let image = house.path().join(format!("state/volumes/{id}/image"));
    assert!(image.metadata().expect("an image").blocks() * 512 <= 16 << 20);
    let more = json!({ "volume_id": "v", "path": "x", "content": "x".repeat(1 << 20) });
    assert_eq!(house.refused("aegis.file.write", more).code, "volume_full");
    house.exec("w", "rm /data/deep/big; echo outside > /root/x");

    // Another machine at the same time, which may only read.
    let read_only = json!([{ "volume": id, "path": "/v", "read_only": true }]);
    house.call("workspace_create", with("r", read_only));
    house.exec("w", "echo again > /data/deep/a");
    let refused =
        house.exec("r", "cat /v/a; echo x > /v/a || echo refused; rm -f /v/a 2>&1; cat /v/a");
    assert!(refused.starts_with("again\nrefused\n") && refused.ends_with("again\n"), "{refused}");

    let in_use = house.refused("aegis.volume.delete", json!({ "volume_id": "v" }));
    assert_eq!(in_use.code, "volume_in_use");
    let mounted = house.call("workspace_info", json!({ "workspace_id": "r" }))["volumes"].clone();
    assert_eq!(mounted, json!([{ "volume": id, "path": "/v", "read_only": true }]));

    // Both go on while there is no daemon, and the next one finds them.
    let count = "for i in $(seq 100); do echo $i >> /data/deep/log; sleep 0.1; done";
    let job = json!({ "workspace_id": "w", "action": "start", "command": count });
    house.call("exec_background", job);
    house.kill();
    let log = house.path().join(format!("state/volumes/{id}/mounted/log"));
    let lines = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    let before = lines();
    let begun = std::time::Instant::now();
    while lines() == before {
        assert!(begun.elapsed().as_secs() < 30, "it does not go on without a daemon");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    house.start();
    house.wait_state("w", "running");
    assert_eq!(
        house.refused("aegis.volume.delete", json!({ "volume_id": "v" })).code,
        "volume_in_use"
    );
    house.exec("w", "echo once-more > /data/deep/a");
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));
    house.call("workspace_create", with("next", json!([{ "volume": "v", "path": "/data" }])));
    assert_eq!(house.exec("next", "cat /data/a").trim(), "once-more");
    house.call("workspace_destroy", json!({ "workspace_id": "next" }));

    // A start keeps what it had, or is told what it has from now on.
    house.call("workspace_stop", json!({ "workspace_id": "r" }));
    assert_eq!(
        house.refused("aegis.volume.delete", json!({ "volume_id": "v" })).code,
        "volume_in_use"
    );
    house.call("workspace_start", json!({ "workspace_id": "r" }));
    assert_eq!(house.exec("r", "cat /v/a").trim(), "once-more");
    house.call("workspace_stop", json!({ "workspace_id": "r" }));
    house.call("workspace_start", json!({ "workspace_id": "r", "volumes": [] }));
    assert_eq!(house.exec("r", "ls /v"), "");
    house.call("aegis.volume.delete", json!({ "volume_id": "v" }));
    nothing_is_left(&house, "deleted");
    assert!(leaks::loops(house.path()).is_empty());
}

pub fn what_cannot_be_mounted_is_refused_and_leaves_nothing(house: House) {
    make(&house, "v");
    for (volume, path, code) in [
        ("none", "/data", "volume_not_found"),
        ("v", "data", "invalid_input"),
        ("v", "/a/../../b", "invalid_input"),
        ("v", "/proc/x", "invalid_input"),
    ] {
        let request = with("w", json!([{ "volume": volume, "path": path }]));
        assert_eq!(house.refused("workspace_create", request).code, code, "{path}");
    }
    let twice = json!([{ "volume": "v", "path": "/a" }, { "volume": "v", "path": "/a/b" }]);
    assert_eq!(house.refused("workspace_create", with("w", twice)).code, "invalid_input");

    // A link that a guest lays in the way of a mount leads nowhere.
    house.create("w");
    house.exec("w", "ln -s /etc /trap; ln -s /proc/1/root /out; touch /file");
    house.call("workspace_stop", json!({ "workspace_id": "w" }));
    for path in ["/trap/x", "/out/tmp/x", "/file"] {
        let start = json!({ "workspace_id": "w", "volumes": [{ "volume": "v", "path": path }] });
        let refused = house.refused("workspace_start", start);
        assert!(refused.text.contains("a volume's folder"), "{path}: {}", refused.text);
    }
    house.call("workspace_start", json!({ "workspace_id": "w", "volumes": [] }));
    assert_eq!(house.exec("w", "ls -d /etc/x /tmp/x 2>/dev/null; true"), "");
    house.call("aegis.volume.delete", json!({ "volume_id": "v" }));
    nothing_is_left(&house, "refused");
}

pub fn every_point_of_a_volume(mut house: House) {
    let request = json!({ "label": "half", "size_limit_bytes": 1 });
    for point in ["after_wanted", "after_image", "before_mount", "after_mount", "before_made"] {
        die_at(&mut house, &format!("volume.{point}"), |house| {
            let answer = house.try_call("aegis.volume.create", request.clone());
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        });
        assert!(labels(&house).is_empty(), "{point}: not undone");
        nothing_is_left(&house, point);
    }
    die_at(&mut house, "volume.after_made", |house| {
        let _died = house.try_call("aegis.volume.create", request.clone());
    });
    assert_eq!(labels(&house), ["half"]);
    for point in ["after_delete_wanted", "after_detach", "after_remove"] {
        if labels(&house).is_empty() {
            make(&house, "half");
        }
        die_at(&mut house, &format!("volume.{point}"), |house| {
            let answer = house.try_call("aegis.volume.delete", json!({ "volume_id": "half" }));
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        });
        assert!(labels(&house).is_empty(), "{point}: not finished");
        nothing_is_left(&house, point);
    }
    let id = make(&house, "v");
    let file = json!({ "volume_id": "v", "path": "a", "content": "kept" });
    house.call("aegis.file.write", file);
    for point in ["volume.before_mount", "volume.after_mount", "start.after_launch"] {
        house.kill();
        let mounted = house.path().join(format!("state/volumes/{id}/mounted"));
        if leaks::mounts(house.path()).iter().any(|mount| Path::new(mount) == mounted) {
            unmounted(&house, &id);
        }
        house.start_armed(&format!("{point}=return(kill)"));
        let created = house
            .try_call("workspace_create", with("w", json!([{ "volume": "v", "path": "/data" }])));
        assert!(matches!(created, Err(None)), "{point}: {created:?}");
        house.wait_for_death();
        house.start();
        assert_eq!(settled(&house, "w"), None, "{point}: not undone");
        assert_eq!(read(&house, "a"), "kept");
        nothing_is_left(&house, point);
    }
    // What it is to have is decided before it starts.
    house.create("w");
    house.call("workspace_stop", json!({ "workspace_id": "w" }));
    die_at(&mut house, "start.after_volumes", |house| {
        let volumes = json!([{ "volume": "v", "path": "/data" }]);
        let start = json!({ "workspace_id": "w", "volumes": volumes });
        assert!(matches!(house.try_call("workspace_start", start), Err(None)));
    });
    assert_eq!(settled(&house, "w").as_deref(), Some("stopped"));
    assert_eq!(
        house.refused("aegis.volume.delete", json!({ "volume_id": "v" })).code,
        "volume_in_use"
    );
    house.call("workspace_start", json!({ "workspace_id": "w" }));
    assert_eq!(house.exec("w", "cat /data/a"), "kept");
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));
    // It looks for what is unused by itself.
    house.kill();
    house.start_armed("volume.after_unmount=return(kill)");
    house.wait_for_death();
    house.start();
    assert_eq!(read(&house, "a"), "kept");
    nothing_is_left(&house, "after_unmount");
}
