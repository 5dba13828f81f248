//! A tree with ways out of it, and what is outside.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{OpenOptionsExt, symlink},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, makedev, mknodat, renameat_with};
use serde_json::Value;

use super::{SECRET, calls::Call};

/// How a call ended.
pub(crate) struct Ended {
    pub(crate) failed: bool,
    /// All that its caller was told.
    pub(crate) text: String,
}

/// A tree with ways out of it, which are laid anew before each call.
pub(crate) struct Trap {
    pub(crate) root: PathBuf,
    pub(crate) outside: PathBuf,
    /// Both ends of the pipe in it, with something to take.
    pipe: Option<File>,
}

/// Names in the tree that lead out of it, or are no file.
pub(crate) const LINKS: [(&str, &str); 7] = [
    ("rel", "../outside"),
    ("file", "../outside/f"),
    ("note.md", "../outside/f"),
    ("dangling", "../outside/new"),
    ("proc", "/proc/self/root"),
    ("cwd", "/proc/self/cwd"),
    ("loop", "loop"),
];

impl Trap {
    /// A tree that is there, and beside it what none may reach.
    pub(crate) fn new(root: PathBuf) -> Self {
        let outside = root.with_file_name("outside");
        fs::create_dir_all(outside.join("d")).expect("made");
        fs::write(outside.join("f"), SECRET).expect("written");
        Self { root, outside, pipe: None }
    }

    pub(crate) fn lay(&mut self) {
        let at = |name: &str| self.root.join(name);
        let gone = |name: &str| at(name).symlink_metadata().is_err();
        for name in ["mine", "mine.md"] {
            fs::write(at(name), "mine").expect("written");
        }
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
            let nonblock = OFlags::NONBLOCK.bits().cast_signed();
            options.read(true).write(true).custom_flags(nonblock);
            let mut pipe = options.open(at("pipe")).expect("opened");
            pipe.write_all(SECRET.as_bytes()).expect("written");
            self.pipe = Some(pipe);
        }
        // Only root makes devices, and on a volume they are none.
        if gone("zero") {
            let zero = (FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(1, 5));
            let _as_root = mknodat(CWD, at("zero"), zero.0, zero.1, zero.2);
        }
        fs::write(self.root.join(OsStr::from_bytes(b"odd \xff")), "odd").expect("written");
    }

    pub(crate) fn assert_nothing_left(&mut self, what: &str) {
        let mut names: Vec<_> = fs::read_dir(&self.outside).expect("there").flatten().collect();
        names.sort_by_key(fs::DirEntry::file_name);
        let names: Vec<_> = names.iter().map(fs::DirEntry::file_name).collect();
        assert_eq!(names, ["d", "f"], "{what}");
        assert_eq!(fs::read_to_string(self.outside.join("f")).expect("there"), SECRET, "{what}");
        assert!(fs::read_dir(self.outside.join("d")).expect("there").next().is_none(), "{what}");
        if let Some(pipe) = &mut self.pipe {
            let mut taken = [0; SECRET.len()];
            pipe.read_exact(&mut taken).expect("nobody else read the pipe");
            pipe.write_all(&taken).expect("written");
        }
    }

    /// Tries each path with each tool, and then one that is exchanged with a link meanwhile. Each
    /// works with a path that leads to where it may.
    pub(crate) fn try_all(
        &mut self,
        call: &mut dyn FnMut(&str, Value) -> Ended,
        tools: &dyn Fn(&str) -> Vec<Call>,
    ) {
        let mut lay = || {
            self.lay();
            for name in ["mine", "mine.md"] {
                fs::write(self.root.join(name), SECRET).expect("written");
            }
        };
        assert_each_works(&mut lay, call, tools);
        for name in ["moved", "moved.md", "new"] {
            let _not_made = fs::remove_file(self.root.join(name));
        }
        self.try_second_names(call, tools);
        for path in paths(&self.outside) {
            for (tool, args) in tools(&path) {
                self.lay();
                let what = shown(tool, &args);
                tell_nothing(&what, &call(tool, args));
                self.assert_nothing_left(&what);
            }
        }
        self.lay();
        let (folder, link, done) =
            (self.root.join("swap"), self.root.join("rel"), AtomicBool::new(false));
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
            for path in ["swap/f", "swap/d", "swap/new", "swap/new.md"].repeat(4) {
                for (tool, args) in tools(path) {
                    let what = shown(tool, &args);
                    tell_nothing(&what, &call(tool, args));
                }
            }
            done.store(true, Relaxed);
            assert!(swapping.join().expect("no panic") > 0, "nothing was swapped");
        });
        self.assert_nothing_left("a folder and a link are exchanged");
    }

    /// A second name of a file outside: what is read by it is that file's, what is written is not.
    fn try_second_names(
        &mut self,
        call: &mut dyn FnMut(&str, Value) -> Ended,
        tools: &dyn Fn(&str) -> Vec<Call>,
    ) {
        for name in ["hard", "hard.md"] {
            for (tool, args) in tools(name) {
                self.lay();
                let second = self.root.join(name);
                let _gone = fs::remove_file(&second);
                match fs::hard_link(self.outside.join("f"), &second) {
                    // A volume is a file system of its own.
                    Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => return,
                    linked => linked.expect("linked"),
                }
                let what = shown(tool, &args);
                let _told_or_refused = call(tool, args);
                self.assert_nothing_left(&what);
                let _moved = fs::remove_file(second);
            }
        }
        for name in ["moved", "moved.md"] {
            let _not_made = fs::remove_file(self.root.join(name));
        }
    }
}

/// Each call works with one of some paths, before which something is prepared: what is refused is
/// refused for its path.
pub(crate) fn assert_each_works(
    prepare: &mut dyn FnMut(),
    call: &mut dyn FnMut(&str, Value) -> Ended,
    tools: &dyn Fn(&str) -> Vec<Call>,
) {
    for number in 0..tools("mine").len() {
        let mut said = Vec::new();
        let works = ["mine", "d", "new", "mine.md", "repo", "a/b"].iter().any(|path| {
            prepare();
            let (tool, args) = tools(path).swap_remove(number);
            let what = shown(tool, &args);
            let ended = call(tool, args);
            said.push(format!("{what}: {}", ended.text));
            !ended.failed
        });
        assert!(works, "works with no path: {said:#?}");
    }
}

pub(crate) fn shown(tool: &str, args: &Value) -> String {
    format!("{tool} {args}").chars().take(200).collect()
}

/// What was asked may be told, nothing that is outside.
pub(crate) fn tell_nothing(what: &str, ended: &Ended) {
    let Ended { failed, text } = ended;
    assert!(*failed || !text.contains(&SECRET[..10]), "{what}: {text}");
    assert!(!text.contains("\"code\":\"internal\""), "{what}: {text}");
}

/// Paths that lead out, or to what is no file.
pub(crate) fn paths(outside: &Path) -> Vec<String> {
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
        "rel/new.md",
        "abs/new.md",
        "../outside/new.md",
        "file",
        "file/.",
        "note.md",
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
