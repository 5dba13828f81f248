//! The user of an image in a sandbox: what is its own inside, and nobody's outside.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    time::Instant,
};

use serde_json::{Value, json};

use super::{
    git,
    stage::{image, run, with_images},
};
use crate::{
    house::{House, PATIENCE},
    leaks,
};

const MORE: &str = "[workspace.images]\nmin_free_mb = 0\n";
const APPLETS: [&str; 19] = [
    "cat", "chmod", "chown", "dd", "echo", "find", "grep", "id", "kill", "ls", "mkdir", "mount",
    "ps", "rm", "setpriv", "sleep", "stat", "touch", "true",
];

/// Restarts the daemon with this added to its configuration, and the image `users` alone.
pub fn with_users(house: &mut House, more: &str) {
    with_images(house, &format!("{MORE}{more}"));
    pull(house);
}

pub fn commands_of_a_sandbox_run_as_the_user_of_the_image(mut house: House) {
    with_users(&mut house, "");
    house.call("aegis.volume.create", json!({ "label": "work", "size_limit_bytes": 16 << 20 }));
    let volumes = json!([{ "volume": "work", "path": "/data" }]);
    for name in ["one", "two"] {
        let request = json!({ "name": name, "base_image": "users", "volumes": volumes });
        house.call("workspace_create", request);
    }
    // A volume is of several workspaces: no user is given one, wherever it is mounted.
    let volumes = json!([{ "volume": "work", "path": "/workspace" }]);
    let request = json!({ "name": "three", "base_image": "users", "volumes": volumes });
    house.call("workspace_create", request);
    assert_eq!(house.exec("three", "id -u; stat -c %u /workspace"), "1000\n0\n");
    house.call("workspace_destroy", json!({ "workspace_id": "three" }));
    let info = house.call("workspace_info", json!({ "workspace_id": "one" }));
    assert_eq!((&info["user"], &info["user_note"]), (&json!("app"), &Value::Null), "{info}");

    what_is_its_own_and_what_is_not(&house);
    others_are_taken_on_or_refused(&house);
    a_volume_has_owners_of_its_own(&house);
    jobs_and_processes_are_the_users(&house);
    files_of_tools_are_the_users(&house);
    git::commands_and_tools_work_on_the_same_repositories(&house);
    ids_of_the_host_are_the_sandboxes_own(&house);

    house.call("workspace_stop", json!({ "workspace_id": "one" }));
    house.kill();
    house.start();
    house.call("workspace_start", json!({ "workspace_id": "one" }));
    for name in ["one", "two"] {
        assert_eq!(house.exec(name, "id -u; stat -c %u ~/theirs"), "1000\n1000\n", "{name}");
        house.call("workspace_destroy", json!({ "workspace_id": name }));
    }
    house.call("aegis.volume.delete", json!({ "volume_id": "work" }));
    leaks::check(&house);
}

/// Runs a command in the first sandbox; all that it says.
fn said(house: &House, user: Option<&str>, command: &str) -> String {
    let mut args = json!({ "workspace_id": "one", "command": format!("{{ {command}; }} 2>&1") });
    if let Some(user) = user {
        args["user"] = json!(user);
    }
    house.call("exec", args)["stdout"].as_str().expect("text").to_owned()
}

fn what_is_its_own_and_what_is_not(house: &House) {
    let who = said(house, None, "id -u; id -G; echo $HOME $USER $PWD");
    assert_eq!(who, "1000\n1001 44\n/srv/app app /srv/app\n");
    let own = "cat theirs; touch made /tmp/made; stat -c %u:%g theirs made /tmp/made /srv/app /bin";
    let owners = "1000:1001\n1000:1001\n1000:1001\n1000:1001\n0:0\n";
    assert_eq!(said(house, None, own), format!("kept\n{owners}"));
    assert_eq!(said(house, None, "echo a > /dev/stdout; echo b > /dev/stderr"), "a\nb\n");
    for denied in [
        "cat /etc/secret",
        "echo x >> /etc/passwd",
        "touch /bin/x",
        "rm -f /bin/busybox",
        "chown 0 theirs",
        "kill -0 1",
        "ls /root",
        "mount -t tmpfs none /tmp",
        "echo 0 > /proc/sys/user/max_user_namespaces",
    ] {
        let said = said(house, None, denied).to_lowercase();
        let refused = ["denied", "not permitted", "are you root"];
        assert!(refused.iter().any(|word| said.contains(word)), "{denied}: {said}");
    }
    // What the image has of other ways to become root has no effect.
    let lends = said(house, None, "stat -c %a /lends/su; /lends/su -c true");
    assert!(lends.starts_with("4755\n") && lends.contains("must be suid"), "{lends}");
    let rights = said(house, None, "grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status");
    for line in rights.lines() {
        let value = line.split_whitespace().last().expect("a value");
        assert!(value == "0000000000000000" || line.starts_with("NoNewPrivs") && value == "1");
    }
    assert_eq!(rights.lines().count(), 5, "{rights}");
}

fn others_are_taken_on_or_refused(house: &House) {
    let root = "id -u; cat /etc/secret; stat -c %u theirs; cat theirs; touch /root/x; kill -0 1 && echo ok";
    assert_eq!(said(house, Some("root"), root), "0\nsecret\n1000\nkept\nok\n");
    for (user, ids) in [
        ("0", "0\n0\n"),
        ("media", "44\n44\n"),
        ("44:app", "44\n1001\n"),
        ("65534", "65534\n65534\n"),
        ("4711", "4711\n0\n"),
    ] {
        assert_eq!(said(house, Some(user), "id -u; id -g"), ids, "{user}");
    }
    for ghost in ["ghost", "app:ghost", "65536", "-1"] {
        let args = json!({ "workspace_id": "one", "command": "true", "user": ghost });
        assert_eq!(house.refused("exec", args).code, "user_unknown", "{ghost}");
        let args =
            json!({ "workspace_id": "one", "action": "start", "command": "true", "user": ghost });
        assert_eq!(house.refused("exec_background", args).code, "user_unknown", "{ghost}");
    }
}

fn files_of_tools_are_the_users(house: &House) {
    let file =
        json!({ "workspace_id": "one", "path": "/srv/app/tool", "content": "x", "mode": "0600" });
    house.call("file_write", file);
    house.call("fs.write", json!({ "place": "one", "path": "deep/er", "content": "x" }));
    let bring = |to: &str| json!({ "workspace_id": "one", "direction": "upload", "host_path": "up", "guest_path": to });
    std::fs::write(house.path().join("state/transfers/up"), "brought").expect("written");
    house.call("file_transfer", bring("/workspace/brought/in"));
    let change = "echo y >> tool; cat tool; stat -c %u /workspace /workspace/deep/er /workspace/brought /workspace/brought/in";
    assert_eq!(said(house, None, change), "xy\n1000\n1000\n1000\n1000\n");
    for roots in ["/etc/brought", "/etc/secret"] {
        assert_eq!(house.refused("file_transfer", bring(roots)).code, "permission_denied");
    }
    let secret = json!({ "workspace_id": "one", "path": "/etc/secret" });
    assert_eq!(house.refused("file_read", secret).code, "permission_denied");
    let secret = json!({ "place": "root@one", "path": "/etc/secret" });
    assert_eq!(house.call("file_read", secret)["content"], "secret\n");
}

fn a_volume_has_owners_of_its_own(house: &House) {
    // Root gives the folder away, once for all sandboxes.
    assert!(said(house, None, "touch /data/x").contains("denied"));
    said(house, Some("root"), "echo r > /data/roots; chmod 600 /data/roots; chown app /data");
    said(house, None, "echo mine > /data/mine; chmod 600 /data/mine");
    assert_eq!(house.exec("two", "cat /data/mine; stat -c %u:%g /data/mine"), "mine\n1000:1001\n");
    assert!(said(house, None, "cat /data/roots").contains("denied"));
    let full = said(house, None, "dd if=/dev/zero of=/data/big bs=1M count=64; rm /data/big");
    assert!(full.contains("No space left"), "{full}");
    let asked = json!({ "volume_id": "work", "path": "mine" });
    assert_eq!(house.call("aegis.file.read", asked)["content"], "mine\n");
    let volumes = house.path().join("state/volumes").read_dir().expect("a folder").flatten();
    let mounted = volumes.map(|it| it.path().join("mounted")).find(|it| it.join("mine").exists());
    let mounted = mounted.expect("it is mounted");
    let owner = |name: &str| mounted.join(name).metadata().expect("there").uid();
    let (mine, roots) = (owner("mine"), owner("roots"));
    assert_eq!(roots, 0);
    // Neither the host's user 1000, nor anybody's of a machine.
    assert!(mine > 65_536, "{mine}");
    for name in ["one", "two"] {
        assert!(!range(house, name).contains(&mine), "{mine} is of {name}");
    }
}

fn jobs_and_processes_are_the_users(house: &House) {
    let start = json!({ "workspace_id": "one", "action": "start", "command": "id -u > /tmp/job" });
    house.call("exec_background", start);
    let begun = Instant::now();
    while said(house, None, "cat /tmp/job") != "1000\n" {
        assert!(begun.elapsed() < PATIENCE, "the job does not write");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let ran = json!({ "place": "one", "command": "id", "args": ["-u"] });
    assert_eq!(house.call("cmd.run", ran)["stdout"], "1000\n");

    // A terminal is its user's, and what a dead shim leaves is found though it is not root's.
    let process = json!({ "place": "one", "command": "sh", "pty": true,
        "args": ["-c", "stat -c %u /dev/pts/* > /tmp/tty; echo up > /dev/tty; sleep 7771; sleep 7772"] });
    let id = house.call("process_start", process)["id"].clone();
    let begun = Instant::now();
    while !house.call("process_output", json!({ "id": id }))["output"]
        .as_str()
        .is_some_and(|said| said.contains("up"))
    {
        assert!(begun.elapsed() < PATIENCE, "the process says nothing");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(said(house, None, "cat /tmp/tty").contains("1000"));
    let shims = "for p in /proc/[0-9]*; do grep -q ^hivekeep-guest.job $p/cmdline 2>/dev/null && echo ${p#/proc/}; done";
    let killed = said(house, Some("root"), &format!("kill -9 $({shims}) && echo killed"));
    assert!(killed.contains("killed"), "{killed}");
    house.call("process_stop", json!({ "id": id, "grace_secs": 1 }));
    let left = said(house, Some("root"), "ps -o args | grep '[s]leep 777'; true");
    assert_eq!(left, "", "it goes on without its shim");
}

/// Ids of the host that a sandbox has, by its first process.
fn range(house: &House, name: &str) -> std::ops::Range<u32> {
    let info = house.call("workspace_info", json!({ "workspace_id": name }));
    let pid = &info["machine"]["pid"];
    let map = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a map");
    assert_eq!(map("uid_map"), map("gid_map"));
    let numbers: Vec<u32> =
        map("uid_map").split_whitespace().map(|it| it.parse().expect("a number")).collect();
    let [inside, outside, count] = numbers[..] else { panic!("{numbers:?}") };
    assert_eq!((inside, count), (0, 65_536));
    outside..outside + count
}

fn ids_of_the_host_are_the_sandboxes_own(house: &House) {
    let ranges = ["one", "two"].map(|name| range(house, name));
    assert!(ranges[0].end <= ranges[1].start || ranges[1].end <= ranges[0].start, "{ranges:?}");
    let given = |file: &str, of: &[usize]| -> Vec<u32> {
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines = text.lines().map(|line| line.split(':').map(str::to_owned).collect::<Vec<_>>());
        lines
            .flat_map(|words| {
                of.iter().filter_map(move |at| words.get(*at)?.parse().ok()).collect::<Vec<u32>>()
            })
            .collect()
    };
    for id in given("/etc/passwd", &[2, 3]).into_iter().chain(given("/etc/group", &[2])) {
        assert!(!ranges.iter().any(|range| range.contains(&id)), "{id} is somebody's");
    }
    for (name, range) in ["one", "two"].iter().zip(&ranges) {
        let info = house.call("workspace_info", json!({ "workspace_id": name }));
        let id = info["workspace_id"].as_str().expect("an id");
        let overlay = house.path().join("state/disks").join(id).join("overlay");
        let mut others = Vec::new();
        walk(&overlay, &mut |path, meta| {
            // A file that is gone from the image is a device of nobody's.
            if !range.contains(&meta.uid()) || !range.contains(&meta.gid()) {
                others.push((path.to_owned(), meta.uid(), meta.gid()));
            }
        });
        assert!(others.is_empty(), "{name} {range:?}: {others:?}");
        assert_eq!(fs::metadata(&overlay).expect("there").permissions().mode() & 0o7777, 0o700);
        let upper = overlay.join("upper/srv/app/made");
        if *name == "one" {
            let made = fs::metadata(upper).expect("it is on the host");
            assert_eq!((made.uid(), made.gid()), (range.start + 1000, range.start + 1001));
        }
    }
    // Processes, of whatever user inside.
    let sleeper = json!({ "workspace_id": "one", "action": "start", "command": "sleep 7773", "user": "media" });
    let job = house.call("exec_background", sleeper)["job_id"].clone();
    let status = |pid: &str| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let uid = ranges[0].start + 44;
    let is_it = |pid: &str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.ends_with(b"7773\0")
            && status(pid).contains(&format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n"))
    };
    let begun = Instant::now();
    let pid = loop {
        let pids = fs::read_dir("/proc").expect("proc").flatten();
        let mut pids = pids.map(|it| it.file_name().to_string_lossy().into_owned());
        match pids.find(|pid| is_it(pid)) {
            Some(pid) => break pid,
            None => assert!(begun.elapsed() < PATIENCE, "it does not run"),
        }
    };
    let status = status(&pid);
    assert!(status.contains(&format!("Groups:\t{uid} \n")), "{status}");
    let kill = json!({ "workspace_id": "one", "action": "kill", "job_id": job });
    house.call("exec_background", kill);
}

fn walk(folder: &Path, see: &mut impl FnMut(&Path, &fs::Metadata)) {
    see(folder, &fs::symlink_metadata(folder).expect("there"));
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let meta = fs::symlink_metadata(&path).expect("there");
        if meta.is_dir() {
            walk(&path, see);
        } else {
            see(&path, &meta);
        }
    }
}

/// Pulls an image with users, files of theirs, and a program that would lend root's rights.
fn pull(house: &House) {
    let layer = layer(house.path());
    let layout = house.path().join("layout-users");
    let layout = layout.to_str().expect("text");
    let name = format!("{layout}:users");
    run("umoci", &["init", "--layout", layout]);
    run("umoci", &["new", "--image", &name]);
    run("umoci", &["raw", "add-layer", "--image", &name, layer.to_str().expect("text")]);
    let config = ["config", "--image", &name, "--config.workingdir", "/srv/app"];
    run("umoci", &[config.as_slice(), &["--config.user", "app"]].concat());
    let (pulled, said) = image(house, &["pull", &format!("oci:{name}"), "--name", "users"]);
    assert!(pulled, "{said}");
}

fn layer(folder: &Path) -> PathBuf {
    let root = folder.join("rootfs");
    for name in ["bin", "etc", "srv/app", "lends", "root", "tmp"] {
        fs::create_dir_all(root.join(name)).expect("made");
    }
    let busybox =
        ["/usr/bin/busybox", "/bin/busybox"].into_iter().find(|it| Path::new(it).exists());
    fs::copy(busybox.expect("it is there"), root.join("bin/busybox")).expect("copied");
    fs::copy(root.join("bin/busybox"), root.join("lends/su")).expect("copied");
    for applet in APPLETS.iter().chain(&["sh"]) {
        symlink("busybox", root.join("bin").join(applet)).expect("linked");
    }
    git::install(&root);
    let passwd = "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/srv/app:/bin/sh\n\
                  media:x:44:44::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n";
    let files = [
        ("etc/passwd", passwd, 0o644, 0, 0),
        ("etc/group", "root:x:0:\napp:x:1001:\nmedia:x:44:app\n", 0o644, 0, 0),
        ("etc/secret", "secret\n", 0o600, 0, 0),
        ("srv/app/theirs", "kept\n", 0o600, 1000, 1001),
    ];
    for (name, text, mode, uid, gid) in files {
        fs::write(root.join(name), text).expect("written");
        give(&root.join(name), mode, uid, gid);
    }
    give(&root.join("srv/app"), 0o750, 1000, 1001);
    give(&root.join("root"), 0o700, 0, 0);
    give(&root.join("tmp"), 0o1777, 0, 0);
    give(&root.join("lends/su"), 0o4755, 0, 0);
    let archive = folder.join("layer.tar");
    let (from, to) = (root.to_str().expect("text"), archive.to_str().expect("text"));
    run("tar", &["--numeric-owner", "-C", from, "-cf", to, "."]);
    archive
}

fn give(path: &Path, mode: u32, uid: u32, gid: u32) {
    chown(path, Some(uid), Some(gid)).expect("given");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}
