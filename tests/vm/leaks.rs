//! What a daemon left on the host, looked for from outside.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::house::House;

/// Processes of machines, and of programs on the host, whose folders are below `home`.
fn machines(home: &Path) -> Vec<(i32, String)> {
    let home = home.to_string_lossy().into_owned();
    let mark = format!("HIVEKEEP_HOST_PROCESS={home}");
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        if pid.unsigned_abs() == own {
            continue;
        }
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let variables = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        // The daemon itself is started with nothing but `daemon`.
        if line.contains(&home) || String::from_utf8_lossy(&variables).contains(&mark) {
            found.push((pid, line));
        }
    }
    found
}

/// Processes that serve volumes to machines whose folders are below `home`: two for each volume.
pub fn volume_servers(home: &Path) -> Vec<i32> {
    let home = home.to_string_lossy().into_owned();
    let file = |pid: i32, name: &str| std::fs::read(format!("/proc/{pid}/{name}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let pids = std::fs::read_dir("/proc").expect("proc").flatten();
    let mut found: Vec<i32> = pids
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .filter(|pid| file(*pid, "comm").is_ok_and(|comm| text(comm).trim() == "virtiofsd"))
        .filter(|pid| file(*pid, "environ").is_ok_and(|all| text(all).contains(&home)))
        .collect();
    found.sort_unstable();
    found
}

/// Where disks that are removed wait, as the daemon names it.
const TRASH: &str = ".hivekeep-trash";

/// What is there may still be on its way out, but goes.
fn emptied(folder: &Path) {
    let begun = Instant::now();
    while !below(folder).is_empty() {
        let left = below(folder);
        assert!(begun.elapsed() < Duration::from_secs(60), "{}: {left:?}", folder.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn below(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Machines of the warm pool, which no list shows, with their states; the templates come last.
fn pooled(house: &House) -> (Vec<(String, String)>, usize) {
    let status = house.call("pool_status", json!({}));
    let classes = status["classes"].as_array().expect("classes");
    let id = |id: &serde_json::Value| id.as_str().expect("id").to_owned();
    let members = classes.iter().flat_map(|class| class["machines"].as_array().expect("machines"));
    let mut rows: Vec<_> =
        members.map(|row| (id(&row["workspace_id"]), "running".to_owned())).collect();
    let templates = classes.iter().filter(|class| class["template"].is_string());
    let templates: Vec<_> =
        templates.map(|class| (id(&class["template"]), "stopped".to_owned())).collect();
    let count = templates.len();
    rows.extend(templates);
    (rows, count)
}

/// Whether there is a machine, or a disk that is not on its way out.
pub fn anything(house: &House) -> bool {
    let disks = below(&house.path().join("state/disks"));
    !machines(house.path()).is_empty() || disks.iter().any(|name| name != TRASH)
}

/// Every process and folder belongs to a listed workspace or to the pool, and none is left of
/// others.
pub fn check(house: &House) {
    let mut listed: Vec<(String, String)> = house
        .list()
        .iter()
        .map(|row| {
            (
                row["workspace_id"].as_str().expect("id").to_owned(),
                row["state"].as_str().expect("state").to_owned(),
            )
        })
        .collect();
    let everybodys = listed.clone();
    let (pooled, templates) = pooled(house);
    listed.extend(pooled);
    for (pid, line) in machines(house.path()) {
        let owner = listed.iter().find(|(id, _)| line.contains(id.as_str()));
        assert!(
            matches!(owner, Some((_, state)) if is_up(state)),
            "process {pid} belongs to no running workspace: {line}\nlisted: {listed:?}"
        );
    }
    for (folder, what) in
        [("state/disks", "disk"), ("run/machines", "run folder"), ("logs/machines", "log folder")]
    {
        let folder = house.path().join(folder);
        emptied(&folder.join(TRASH));
        for name in below(&folder).into_iter().filter(|name| name != TRASH) {
            let known = listed.iter().any(|(id, _)| *id == name);
            assert!(known, "{what} {name} belongs to no workspace: {listed:?}");
        }
    }
    snapshots(house, &everybodys, templates);
    for (id, state) in &listed {
        let runs = machines(house.path()).iter().any(|(_, line)| line.contains(id.as_str()));
        assert_eq!(runs, is_up(state), "{id} is {state}, machine runs: {runs}");
    }
}

fn is_up(state: &str) -> bool {
    matches!(state, "running" | "paused")
}

/// Every memory belongs to a snapshot, a template or a parked machine, and no layer outlives the last of both.
fn snapshots(house: &House, listed: &[(String, String)], templates: usize) {
    let mut known = Vec::new();
    for (id, _) in listed {
        let info = house.call("workspace_info", json!({ "workspace_id": id }));
        for snapshot in info["snapshots"].as_array().expect("snapshots") {
            if snapshot["has_memory"] == true {
                known.push(snapshot["id"].as_str().expect("an id").to_owned());
            }
        }
    }
    // A parked one has its own memory on the disk.
    let spare = templates + listed.iter().filter(|(_, state)| state == "parked").count();
    // Files that nobody needs any more are removed right after the answer.
    let begun = Instant::now();
    loop {
        let memories = below(&house.path().join("state/memories")).into_iter();
        let memories: Vec<_> = memories.filter(|name| !known.contains(name)).collect();
        let layers = below(&house.path().join("state/layers"));
        let needed = !listed.is_empty() || templates > 0;
        if memories.len() <= spare && (needed || layers.is_empty()) {
            return;
        }
        let late = begun.elapsed() > Duration::from_secs(10);
        assert!(!late, "memories of no snapshot: {memories:?}; layers: {layers:?}; {listed:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ends what a test left.
pub fn end_machines(home: &Path) {
    let servers = volume_servers(home);
    for pid in machines(home).into_iter().map(|(pid, _)| pid).chain(servers) {
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            let _ended = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Mount points of volumes below `home`.
pub fn mounts(home: &Path) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let targets = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let volumes = home.join("state/volumes");
    targets.filter(|target| Path::new(target).starts_with(&volumes)).map(str::to_owned).collect()
}

/// Files below `home` that loop devices are over.
pub fn loops(home: &Path) -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").expect("devices").flatten();
    let file = |path: std::path::PathBuf| std::fs::read_to_string(path).ok();
    let backing = devices.filter_map(|device| file(device.path().join("loop/backing_file")));
    let below = backing.filter(|file| Path::new(file.trim()).starts_with(home));
    below.map(|file| file.trim().to_owned()).collect()
}

/// Unmounts what a test left.
pub fn unmount(home: &Path) {
    for target in mounts(home) {
        let _gone = rustix::mount::unmount(target, rustix::mount::UnmountFlags::DETACH);
    }
}
