use super::*;
use rustix::fs::mkdirat;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// Size of a stack that no recursion fits on, and a limit of descriptors far below the depth.
const STACK_BYTES: usize = 128 << 10;
const DESCRIPTORS: u64 = 256;

/// Folder in memory where there is one: removing 40,000 folders takes a minute on a busy disk.
fn place() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Removes a tree with few resources. Each test is a process of its own.
fn remove_in_want(path: &Path) -> io::Result<()> {
    let few = Rlimit { current: Some(DESCRIPTORS), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, few).unwrap();
    let path = path.to_owned();
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(move || remove_tree(&path)).unwrap().join().unwrap()
}

fn folder(path: &Path) -> OwnedFd {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// Makes nested folders, deeper than any path reaches, with a file at every hundredth.
fn deep(top: &Path, depth: usize, name: &str) {
    let mut at = folder(top);
    for level in 0..depth {
        mkdirat(&at, name, Mode::RWXU).unwrap();
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        at = openat(&at, name, how, Mode::empty()).unwrap();
        if level % 100 == 0 {
            let how = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(&at, "file", how, Mode::RUSR).unwrap();
        }
    }
}

/// Peak memory of this process.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_tree_of_any_depth_takes_few_descriptors_and_no_stack() {
    let dir = place();
    let top = dir.path().join("top");
    fs::create_dir(&top).unwrap();
    deep(&top, 40_000, "d");
    deep(&top, 3_000, &"n".repeat(255));
    remove_in_want(&top).unwrap();
    assert!(!top.exists());
}

#[test]
fn a_folder_of_any_number_of_names_takes_little_memory() {
    const NAMES: usize = 300_000;
    let dir = place();
    let top = dir.path().join("top");
    fs::create_dir(&top).unwrap();
    let at = folder(&top);
    // Hard links of one file, as many as its file system allows: 100 bytes each are 30 MB of names.
    let mut first = String::new();
    for number in 0..NAMES {
        let name = format!("{number:0100}");
        if number % 30_000 == 0 {
            fs::write(top.join(&name), "").unwrap();
            first = name;
        } else {
            rustix::fs::linkat(&at, &first, &at, &name, AtFlags::empty()).unwrap();
        }
    }
    let before = peak_kib();
    remove_in_want(&top).unwrap();
    assert!(!top.exists());
    let grown = peak_kib() - before;
    assert!(grown < 16 << 10, "{grown} KiB for the names");
}

#[test]
fn everything_that_a_guest_can_make_goes_and_nothing_else() {
    use std::os::unix::net::UnixListener;
    let dir = tempfile::tempdir().unwrap();
    let (top, outside) = (dir.path().join("top"), dir.path().join("outside"));
    for made in [&top.join("a/b/.moved-up-0/x"), &top.join(".moved-up-1/x"), &outside] {
        fs::create_dir_all(made).unwrap();
    }
    fs::write(top.join(".moved-up-2"), "taken").unwrap();
    fs::write(outside.join("kept"), "").unwrap();
    symlink(&outside, top.join("a/link")).unwrap();
    symlink("nowhere", top.join("a/dangling")).unwrap();
    fs::hard_link(outside.join("kept"), top.join("a/second name")).unwrap();
    drop(UnixListener::bind(top.join("a/socket")).unwrap());
    let at = folder(&top.join("a"));
    rustix::fs::mknodat(&at, "fifo", FileType::Fifo, Mode::RUSR, 0).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"\xff\n\x1b[31m");
    fs::write(top.join(odd), "").unwrap();
    deep(&top.join("a"), 200, "d");
    remove_in_want(&top).unwrap();
    assert!(!top.exists() && outside.join("kept").exists());
    // Link itself, a file, nothing.
    symlink(&outside, &top).unwrap();
    remove_tree(&top).unwrap();
    fs::write(&top, "").unwrap();
    for _ in 0..2 {
        remove_tree(&top).unwrap();
    }
    remove_tree(&top.join("nor its parent")).unwrap();
    assert!(!top.exists() && outside.join("kept").exists());
}

#[test]
fn folders_that_deny_their_owner_everything_go_too() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().join("top");
    fs::create_dir(&top).unwrap();
    let inner = top.join("a/b");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("file"), "").unwrap();
    deep(&top, 100, "d");
    // Runs as another user, who has no rights but an owner's.
    let root = rustix::process::geteuid().is_root();
    if root {
        let mut chown = std::process::Command::new("chown");
        assert!(chown.arg("-R").arg("64777").arg(dir.path()).status().unwrap().success());
    }
    // First folder that the walk moves up, which changes it.
    let mut at = folder(&top);
    for _ in 0..WINDOW {
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        at = openat(&at, "d", how, Mode::empty()).unwrap();
    }
    fchmod(&at, Mode::RUSR | Mode::XUSR).unwrap();
    for (path, mode) in [(inner, 0o000), (top.join("a"), 0o444), (top.clone(), 0o100)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let removed = std::thread::spawn(move || {
        if root {
            let other = rustix::process::Uid::from_raw(64_777);
            rustix::thread::set_thread_res_uid(other, other, other).unwrap();
            assert!(fs::read_dir(&top).is_err(), "it has kept root's rights");
        }
        remove_tree(&top).map(|()| top.exists())
    });
    assert!(!removed.join().unwrap().unwrap());
}

#[test]
fn what_cannot_be_removed_stays_with_its_reason_and_the_rest_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (top, elsewhere) = (dir.path().join("top"), dir.path().join("elsewhere"));
    let point = top.join("a/mounted\n");
    for made in [&point, &elsewhere] {
        fs::create_dir_all(made).unwrap();
    }
    fs::write(elsewhere.join("kept"), "").unwrap();
    fs::write(top.join("a/file"), "").unwrap();
    deep(&top.join("a"), 100, "d");
    // Same file system: its device number tells nothing.
    if let Err(errno) = rustix::mount::mount_bind(&elsewhere, &point) {
        return hivekeep_skip::skip(format_args!("this user may not mount: {errno}"));
    }
    let removed = remove_tree(&top);
    let again = remove_tree(&top);
    rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH).unwrap();
    let (error, again) = (removed.unwrap_err().to_string(), again.unwrap_err().to_string());
    assert_eq!(error, "\"mounted\\n\": something is mounted there");
    assert_eq!(again, error);
    assert!(elsewhere.join("kept").exists());
    let left: Vec<_> = fs::read_dir(top.join("a")).unwrap().collect();
    assert_eq!((left.len(), fs::read_dir(&top).unwrap().count()), (1, 1), "{left:?}");
    remove_tree(&top).unwrap();
    assert!(!top.exists());
}
