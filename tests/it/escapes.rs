//! Ways out of a place, tried on each path of each file tool: on a folder of the host and on a volume.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{OpenOptionsExt, symlink},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, makedev, mknodat, renameat_with};
use serde_json::{Value, json};

use crate::{home::Home, wire::Wire};

const SECRET: &str = "secret outside";

/// Each tool with the path in each place where it takes one, in a place.
fn in_place(place: &str, path: &str) -> Vec<(&'static str, Value)> {
    let edit = json!({ "target_content": SECRET, "replacement_content": "x" });
    let mut all = vec![
        ("fs.read", json!({ "path": path })),
        ("fs.write", json!({ "path": path, "content": "x" })),
        ("fs.list", json!({ "path": path })),
        ("fs.create_dir", json!({ "path": path })),
        ("fs.edit", json!({ "path": path, "target_content": SECRET, "replacement_content": "x" })),
        ("fs.multi_edit", json!({ "path": path, "edits": [edit] })),
        ("fs.grep", json!({ "path": path, "pattern": "secret" })),
        ("fs.glob", json!({ "path": path, "pattern": "**" })),
        ("file_read", json!({ "path": path })),
        ("file_write", json!({ "path": path, "content": "x", "mode": "0644" })),
        ("file_edit", json!({ "path": path, "old_string": SECRET, "new_string": "x" })),
        ("file_exists", json!({ "path": path })),
        ("dir_list", json!({ "path": path })),
        ("dir_create", json!({ "path": path })),
        ("read", json!({ "path": path })),
        ("patch", json!({ "path": path, "operation": "create", "content": "x" })),
        (
            "patch",
            json!({ "path": path, "operation": "replace", "old_string": SECRET, "new_string": "x" }),
        ),
        ("patch", json!({ "path": path, "operation": "delete" })),
        ("file_rename", json!({ "oldPath": path, "newPath": "moved", "overwrite": true })),
        ("file_rename", json!({ "oldPath": "mine", "newPath": path, "overwrite": true })),
        ("file_delete", json!({ "path": path })),
        ("fs.delete", json!({ "path": path, "recursive": true })),
    ];
    all.iter_mut().for_each(|(_, args)| args["place"] = json!(place));
    all
}

/// The tools of volumes' files.
fn in_volume(path: &str) -> Vec<(&'static str, Value)> {
    let mut all = vec![
        ("aegis.file.read", json!({ "path": path })),
        ("aegis.file.list", json!({ "path": path })),
        ("aegis.file.mkdir", json!({ "path": path })),
        ("aegis.file.write", json!({ "path": path, "content": "x" })),
        ("aegis.file.delete", json!({ "path": path })),
    ];
    all.iter_mut().for_each(|(_, args)| args["volume_id"] = json!("v"));
    all
}

/// A tree with ways out of it, which are laid anew before each call.
struct Trap {
    root: PathBuf,
    outside: PathBuf,
    /// Both ends of the pipe in it, with something to take.
    pipe: Option<File>,
}

/// Names in the tree that lead out of it, or are no file.
const LINKS: [(&str, &str); 6] = [
    ("rel", "../outside"),
    ("file", "../outside/f"),
    ("dangling", "../outside/new"),
    ("proc", "/proc/self/root"),
    ("cwd", "/proc/self/cwd"),
    ("loop", "loop"),
];

impl Trap {
    fn lay(&mut self) {
        let at = |name: &str| self.root.join(name);
        let gone = |name: &str| at(name).symlink_metadata().is_err();
        fs::write(at("mine"), "mine").expect("written");
        fs::create_dir_all(at("d")).expect("made");
        for (name, target) in LINKS {
            if gone(name) {
                symlink(target, at(name)).expect("linked");
            }
        }
        if gone("abs") {
            symlink(&self.outside, at("abs")).expect("linked");
        }
        if gone("pipe") {
            mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc_nonblock());
            let mut pipe = options.open(at("pipe")).expect("opened");
            pipe.write_all(SECRET.as_bytes()).expect("written");
            self.pipe = Some(pipe);
        }
        // Only root makes devices, and on a volume they are none.
        if gone("zero") {
            let zero = (FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(1, 5));
            let _as_root = mknodat(CWD, at("zero"), zero.0, zero.1, zero.2);
        }
        let odd = self.root.join(std::ffi::OsStr::from_bytes(b"odd \xff"));
        fs::write(odd, "odd").expect("written");
    }

    fn assert_nothing_left(&mut self, what: &str) {
        let mut names: Vec<_> = fs::read_dir(&self.outside).expect("there").flatten().collect();
        names.sort_by_key(std::fs::DirEntry::file_name);
        let names: Vec<_> = names.iter().map(std::fs::DirEntry::file_name).collect();
        assert_eq!(names, ["d", "f"], "{what}");
        assert_eq!(fs::read_to_string(self.outside.join("f")).expect("there"), SECRET, "{what}");
        assert!(fs::read_dir(self.outside.join("d")).expect("there").next().is_none(), "{what}");
        if let Some(pipe) = &mut self.pipe {
            let mut taken = [0; SECRET.len()];
            pipe.read_exact(&mut taken).expect("nobody else read the pipe");
            pipe.write_all(&taken).expect("written");
        }
    }
}

fn libc_nonblock() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits().cast_signed()
}

/// Paths that lead out, or to what is no file.
fn paths(outside: &Path) -> Vec<String> {
    let absolute = outside.display();
    let long = "x".repeat(300);
    let mut paths: Vec<_> = [
        "../outside/f",
        "d/../../outside/f",
        "/../outside/f",
        "abs",
        "abs/f",
        "abs/new",
        "rel/f",
        "rel/d",
        "rel/x/y",
        "file",
        "file/.",
        "dangling",
        "cwd/x",
        "loop",
        "loop/x",
        "proc/etc/hostname",
        "pipe",
        "pipe/x",
        "zero",
        "a\0b",
        "odd \u{fffd}",
        "",
        "/proc/self/environ",
        "mine/../../outside/f",
    ]
    .map(str::to_owned)
    .into();
    paths.extend([format!("{absolute}/f"), format!("proc{absolute}/f"), long, "d/".repeat(2_100)]);
    paths
}

/// Tries each path with each tool, and then one that is exchanged with a link meanwhile.
fn try_all(wire: &mut Wire, trap: &mut Trap, tools: &dyn Fn(&str) -> Vec<(&'static str, Value)>) {
    let mut call = |tool: &str, args: Value| {
        let answer = wire.call(7, tool, args.clone());
        assert!(answer["error"].is_null(), "{tool} {args}: {answer}");
        let (failed, answer) = (answer["result"]["isError"] == true, answer["result"].to_string());
        // What was asked may be told, nothing that is outside.
        assert!(failed || !answer.contains("secret out"), "{tool} {args}: {answer}");
        assert!(!answer.contains("root:x:"), "{tool} {args}: {answer}");
        assert!(!answer.contains("\"code\":\"internal\""), "{tool} {args}: {answer}");
    };
    for path in paths(&trap.outside) {
        for (tool, args) in tools(&path) {
            trap.lay();
            let what = format!("{tool} {args}").chars().take(200).collect::<String>();
            call(tool, args);
            trap.assert_nothing_left(&what);
        }
    }
    trap.lay();
    let (folder, link, done) =
        (trap.root.join("swap"), trap.root.join("rel"), AtomicBool::new(false));
    let _there = fs::create_dir(&folder);
    std::thread::scope(|scope| {
        let swapping = scope.spawn(|| {
            let mut swaps = 0_u64;
            while !done.load(Relaxed) {
                let swapped = renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE);
                swaps += u64::from(swapped.is_ok());
            }
            swaps
        });
        for _ in 0..5 {
            for path in ["swap/f", "swap/d", "swap/new"] {
                tools(path).into_iter().for_each(|(tool, args)| call(tool, args));
            }
        }
        done.store(true, Relaxed);
        assert!(swapping.join().expect("no panic") > 0, "nothing was swapped");
    });
    trap.assert_nothing_left("a folder and a link are exchanged");
}

fn outside(folder: &Path) -> PathBuf {
    let outside = folder.join("outside");
    fs::create_dir_all(outside.join("d")).expect("made");
    fs::write(outside.join("f"), SECRET).expect("written");
    outside
}

fn attached(home: &Home) -> Wire {
    let mut wire = Wire::start(home, &["--no-spawn"]);
    wire.initialize();
    wire
}

#[test]
fn nothing_leads_out_of_a_folder_of_the_host() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let (root, outside) = (folder.path().join("work"), outside(folder.path()));
    fs::create_dir(&root).expect("made");
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    let config = format!("[session.places.work]\nfolder = {root:?}\nread_only = false\n");
    fs::write(home.path("config.toml"), config).expect("writes");
    let _daemon = home.daemon();
    // A second name of a file outside keeps what it has.
    fs::hard_link(outside.join("f"), root.join("hard")).expect("linked");
    let mut trap = Trap { root, outside, pipe: None };
    let mut wire = attached(&home);
    for (tool, args) in in_place("work", "hard") {
        if args["content"].is_string() || tool.ends_with("edit") {
            wire.call(3, tool, args);
        }
    }
    trap.assert_nothing_left("a hard link");
    try_all(&mut wire, &mut trap, &|path| in_place("work", path));
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
        println!("SKIPPED: volumes need root and loop devices");
        return;
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
    let outside = outside(&volumes.join(&id));
    let mut trap = Trap { root, outside, pipe: None };
    try_all(&mut wire, &mut trap, &|path| [in_place("volume:v", path), in_volume(path)].concat());
}
