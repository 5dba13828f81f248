use std::fs;

use rustix::pipe::{PipeFlags, pipe_with};

use super::*;
use crate::cgroup::Unified;

const NOBODY_ELSE: MachineUser = MachineUser { uid: 64_778, gid: 64_779, switch: true };

fn told(program: &str, args: &[&str], out: &Path) -> Spawn {
    Spawn {
        program: program.into(),
        args: args.iter().map(OsString::from).collect(),
        fds: Vec::new(),
        listen: Vec::new(),
        user: MachineUser { uid: 0, gid: 0, switch: false },
        groups: Vec::new(),
        door: Door::default(),
        enclosure: None,
        stdout: append_log(out).unwrap(),
        stderr: append_log(out).unwrap(),
    }
}

/// Runs to the end and returns the output.
fn said(spawn: Spawn, out: &Path) -> String {
    let process = spawn.start().unwrap();
    child::reap(process.pid);
    fs::read_to_string(out).unwrap()
}

/// Lists the remaining processes of this thread, zombies too.
fn children() -> String {
    fs::read_to_string("/proc/thread-self/children").unwrap()
}

fn field<'s>(status: &'s str, name: &str) -> Vec<&'s str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').split_ascii_whitespace().collect()
}

#[test]
fn a_program_starts_in_its_group_and_leaves_no_process() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let unified = mounts.lines().find(|line| line.contains(" - cgroup2 "));
    let Some(point) = unified.and_then(|line| line.split(' ').nth(4)) else {
        return hivekeep_skip::skip("no unified cgroup hierarchy is mounted");
    };
    let name = format!("hivekeep-test-{}", std::process::id());
    let group = Path::new(point).join(&name);
    if let Err(error) = fs::create_dir(&group) {
        return hivekeep_skip::skip(format_args!("no cgroup can be made: {error}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let (out, before) = (folder.path().join("out"), children());
    // A descriptor that nobody can be born by stands for an older kernel.
    for born_there in [true, false] {
        let spawn = |program: &str| {
            let procs = fs::OpenOptions::new().write(true).open(group.join("cgroup.procs"));
            let dir = if born_there { File::open(&group) } else { File::open(&out) };
            let unified = Unified { dir: dir.unwrap().into(), procs: procs.unwrap().into() };
            let door = Door { tasks: Vec::new(), unified: Some(unified) };
            Spawn { door, ..told(program, &["/proc/self/cgroup"], &out) }
        };
        fs::write(&out, "").unwrap();
        let said = said(spawn("/bin/cat"), &out);
        let there = |line: &str| line.starts_with("0::") && line.ends_with(&name);
        assert!(said.lines().any(there), "{said}");
        assert!(spawn("/no/such/program").start().is_err());
        assert_eq!(children(), before);
    }
    fs::remove_dir(&group).unwrap();
}

#[test]
fn what_cannot_be_executed_is_told_and_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let (out, before) = (folder.path().join("out"), children());
    let error = told("/no/such/program", &[], &out).start().unwrap_err();
    let Error::Io { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    assert!(told("/bin/cat", &["a\0b"], &out).start().is_err());
    assert_eq!(children(), before);
}

#[test]
fn it_has_what_it_was_given_and_nothing_of_the_daemons() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let (given, _write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (_kept, _left_open) = pipe_with(PipeFlags::empty()).unwrap();
    let number = given.as_raw_fd();
    // The shell reads its own status: while a child of its starts, it blocks signals.
    let script = "env; ls -m /proc/$$/fd; readlink /proc/$$/fd/0; pwd; umask; \
        while read -r line; do echo \"$line\"; done < /proc/$$/status; \
        [ $(cut -d' ' -f6 /proc/$$/stat) = $$ ] && echo leads";
    let spawn = Spawn { fds: vec![given], ..told("/bin/sh", &["-c", script], &out) };
    let said = said(spawn, &out);
    let descriptors = format!("0, 1, 2, {number}");
    for line in [descriptors.as_str(), "/dev/null", "LANG=C.UTF-8", "/", "0077", "leads"] {
        assert!(said.lines().any(|other| other == line), "{line}: {said}");
    }
    assert!(!said.contains("CARGO"), "{said}");
    assert_eq!(field(&said, "NoNewPrivs"), ["1"]);
    for signals in ["SigBlk", "SigIgn", "SigCgt"] {
        // The shell itself catches what it waits for.
        let set = u64::from_str_radix(field(&said, signals)[0], 16).unwrap();
        assert_eq!(set & (1 << (libc::SIGPIPE - 1)), 0, "{signals}: {set:x}");
    }
}

#[test]
fn it_alone_switches_its_user() {
    if !rustix::process::geteuid().is_root() {
        return hivekeep_skip::skip("only root switches users");
    }
    // Another thread, whose user must stay what it is.
    let (stop, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv().is_err());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let more = Spawn { user: NOBODY_ELSE, groups: vec![64_780], ..told("/bin/cat", &[], &out) };
    let said = said(Spawn { args: vec!["/proc/self/status".into()], ..more }, &out);
    assert_eq!(field(&said, "Uid"), ["64778"; 4]);
    assert_eq!(field(&said, "Gid"), ["64779"; 4]);
    assert_eq!(field(&said, "Groups"), ["64780"]);
    for set in ["CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(&said, set), ["0000000000000000"], "{set}");
    }
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert_eq!(field(&status, "Uid"), ["0"; 4]);
    }
    drop(stop);
    assert!(thread.join().unwrap());
}

#[test]
fn it_starts_with_the_limit_of_open_files_that_the_daemon_was_started_with() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(517), maximum: hard }).unwrap();
    let raised = raise_open_files().unwrap();
    assert_eq!(raised, [Some(517), hard]);
    assert_eq!(getrlimit(Resource::Nofile).current, hard);
    // A second one must not make the raised limit the one to give.
    raise_open_files().unwrap();
    let limits = said(told("/bin/cat", &["/proc/self/limits"], &out), &out);
    assert_eq!(field(&limits, "Max open files")[0], "517", "{limits}");
}
