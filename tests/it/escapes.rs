//! Ways out of where paths begin, tried on each path of each tool: here on a folder of the host, a volume and the
//! vault, in tests/vm on sandboxes.

mod calls;
mod closed;
mod trap;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{home::Home, wire::Wire};
use calls::{Call, by_name, in_place, in_vault, in_volume};
use trap::{Ended, Trap};

/// What is outside.
pub(crate) const SECRET: &str = "secret outside";

/// Tries each path with each tool; the daemon answers afterwards.
fn try_all(wire: &mut Wire, trap: &mut Trap, tools: &dyn Fn(&str) -> Vec<Call>) {
    let mut call = |tool: &str, args: Value| {
        let answer = wire.call(7, tool, args.clone());
        assert!(answer["error"].is_null(), "{tool} {args}: {answer}");
        let text = answer["result"].to_string();
        assert!(!text.contains("root:x:"), "{tool} {args}: {text}");
        Ended { failed: answer["result"]["isError"] == true, text }
    };
    trap.try_all(&mut call, tools);
    assert!(!call("workspace_list", json!({})).failed);
}

fn attached(home: &Home) -> Wire {
    let mut wire = Wire::start(home, &["--no-spawn"]);
    wire.initialize();
    wire
}

#[test]
fn nothing_leads_out_of_a_folder_of_the_host() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let root = folder.path().join("work");
    fs::create_dir(&root).expect("made");
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    let config = format!("[session.places.work]\nfolder = {root:?}\nread_only = false\n");
    fs::write(home.path("config.toml"), config).expect("writes");
    let _daemon = home.daemon();
    let mut trap = Trap::new(root);
    try_all(&mut attached(&home), &mut trap, &|path| in_place("work", path));
}

/// Unmounts what a test mounted, also after a panic.
struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for target in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)) {
            if Path::new(target).starts_with(&self.0) {
                let _gone = rustix::mount::unmount(target, rustix::mount::UnmountFlags::DETACH);
            }
        }
    }
}

#[test]
fn a_volume_is_a_place_that_nothing_leads_out_of() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return hivekeep_skip::skip("volumes need root and loop devices");
    }
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    let volumes = home.path("state/volumes");
    let _unmounted = Unmounted(volumes.clone());
    let _daemon = home.daemon();
    let mut wire = attached(&home);
    let mut call = |tool: &str, args: Value| wire.call(5, tool, args)["result"].take();
    let made = call("aegis.volume.create", json!({ "label": "v", "size_limit_bytes": 16 << 20 }));
    let id = made["structuredContent"]["volume_id"].as_str().expect("an id").to_owned();
    // One engine: what one tool writes the other reads.
    let write = json!({ "place": "volume:v", "path": "a/f", "content": "one\ntwo\n" });
    assert_eq!(call("fs.write", write)["structuredContent"]["place"], "volume:v");
    let read = call("aegis.file.read", json!({ "volume_id": id, "path": "a/f" }));
    assert_eq!(read["structuredContent"]["content"], "one\ntwo\n");
    let edit = json!({ "place": format!("volume:{id}"), "path": "a/f", "old_string": "two", "new_string": "2" });
    assert_eq!(call("file_edit", edit)["structuredContent"]["replacements"], 1);
    let found = call("fs.grep", json!({ "place": "volume:v", "path": ".", "pattern": "^2$" }));
    assert_eq!(found["structuredContent"]["matches"], json!(["a/f:2:2"]));
    let mut large = json!({ "place": "volume:v", "path": "large", "content": "x".repeat(9 << 20) });
    assert!(call("fs.write", large.clone())["isError"] != true);
    large["path"] = json!("larger");
    let full = call("fs.write", large);
    let told = full["content"].to_string();
    assert!(full["isError"] == true && told.contains("volume_full"), "{told}");
    assert!(told.contains("size_bytes") && told.contains("free_bytes"), "{told}");
    for place in ["volume:other", "volume:"] {
        let refused =
            call("fs.list", json!({ "place": place, "path": "." }))["content"].to_string();
        assert!(refused.contains("volume_not_found"), "{place}: {refused}");
    }
    let root = volumes.join(&id).join("mounted");
    let _stays_mounted = File::open(&root).expect("mounted");
    let mut trap = Trap::new(root);
    try_all(&mut wire, &mut trap, &|path| [in_place("volume:v", path), in_volume(path)].concat());
}

#[test]
fn the_vault_is_left_by_no_path() {
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    let _daemon = home.daemon();
    let mut trap = Trap::new(home.path("state/vault"));
    try_all(&mut attached(&home), &mut trap, &in_vault);
}

#[test]
fn names_lead_to_nothing_of_the_host() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    // Not even where each registry may be pulled from.
    let config = "[workspace.images]\nregistries = [\"*\"]\n";
    fs::write(home.path("config.toml"), config).expect("writes");
    let _daemon = home.daemon();
    let mut trap = Trap::new(folder.path().join("work"));
    let mut wire = attached(&home);
    for path in trap::paths(&trap.outside) {
        for (tool, args) in by_name(&path) {
            let what = trap::shown(tool, &args);
            let answer = wire.call(7, tool, args)["result"].take();
            assert!(answer["isError"] == true, "{what}: {answer}");
            trap::tell_nothing(&what, &Ended { failed: true, text: answer.to_string() });
        }
    }
    trap.assert_nothing_left("names");
    let made = wire.call(8, "workspace_list", json!({}))["result"]["structuredContent"].take();
    assert_eq!(made["workspaces"], json!([]), "{made}");
}
