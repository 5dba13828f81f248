//! Going on between fork and exec as a new process that is born in a cgroup.
//!
//! Only clone3(2) with `CLONE_INTO_CGROUP` puts a process into a group of the unified hierarchy
//! without an RCU grace period, and [`std::process::Command`] cannot make it. So its child makes
//! another, as a child of the daemon too, tells that one's pid and ends.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};

/// As in `linux/sched.h`; `libc` gives it in a type that is too narrow.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// In the child: tells the pid of its successor.
pub(super) struct Announce(OwnedFd);

/// In the daemon: hears it.
pub(super) struct Hear(OwnedFd);

pub(super) fn announcement() -> io::Result<(Announce, Hear)> {
    let (hear, announce) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Announce(announce), Hear(hear)))
}

impl Announce {
    /// Returns true in the new process, in the group; the old one ends here. Returns false where
    /// the kernel or a filter does not allow it. Allocates nothing. Legal with one thread.
    pub(super) fn born_in(&self, group: &OwnedFd) -> bool {
        let Ok(cgroup) = u64::try_from(group.as_raw_fd()) else { return false };
        // SAFETY: all zeroes is what the kernel takes for nothing asked.
        let mut asked: libc::clone_args = unsafe { std::mem::zeroed() };
        // The exit signal is the parent's own, as it is for every sibling.
        asked.flags = CLONE_INTO_CGROUP | libc::CLONE_PARENT as u64;
        asked.cgroup = cgroup;
        // SAFETY: the structure and its size are those of this call; without CLONE_VM the new
        // process has its own copy of the memory and goes on from here like a forked one.
        let pid = unsafe {
            libc::syscall(libc::SYS_clone3, &raw const asked, size_of::<libc::clone_args>())
        };
        match pid {
            0 => true,
            ..0 => false,
            pid => {
                let told = rustix::io::write(&self.0, &pid.to_ne_bytes());
                // SAFETY: ends this process, which nobody waits for but the daemon.
                unsafe { libc::_exit(if told.is_ok() { 0 } else { 1 }) }
            }
        }
    }
}

impl Hear {
    /// The successor's pid; `None` if there is none. Legal once no other process can tell: after
    /// the exec, or the end, of the child.
    pub(super) fn pid(self) -> Option<i32> {
        let mut bytes = [0; size_of::<libc::c_long>()];
        File::from(self.0).read_exact(&mut bytes).ok()?;
        i32::try_from(libc::c_long::from_ne_bytes(bytes)).ok()
    }
}

/// Reaps a successor that ended before its exec.
pub(super) fn reap(pid: i32) {
    // SAFETY: takes no pointer; the status is not wanted. The pid is that of a child not yet
    // reaped, so nobody else can have it.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use crate::driver::cgroup::Unified;
    use std::fs;

    fn spawn(program: &str, dir: &Path, out: &Path) -> Result<ProcessId, Error> {
        let procs = fs::OpenOptions::new().write(true).open(dir.join("cgroup.procs")).unwrap();
        let unified = Unified { dir: File::open(dir).unwrap().into(), procs: procs.into() };
        let spawn = Spawn {
            program: program.into(),
            args: vec!["/proc/self/cgroup".into()],
            fds: Vec::new(),
            listen: Vec::new(),
            user: MachineUser { uid: 0, gid: 0, switch: false },
            groups: Vec::new(),
            door: Door { tasks: Vec::new(), unified: Some(unified) },
            layout: None,
            stdout: append_log(out).unwrap(),
            stderr: append_log(out).unwrap(),
        };
        spawn.start()
    }

    /// What of this process's children is left, zombies too.
    fn children() -> String {
        fs::read_to_string("/proc/thread-self/children").unwrap()
    }

    #[test]
    fn a_program_starts_in_its_group_and_leaves_no_process() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let unified = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let Some(point) = unified.and_then(|line| line.split(' ').nth(4)) else {
            println!("SKIPPED: no unified cgroup hierarchy is mounted");
            return;
        };
        let name = format!("hivekeep-test-{}", std::process::id());
        let group = Path::new(point).join(&name);
        if let Err(error) = fs::create_dir(&group) {
            println!("SKIPPED: no cgroup can be made: {error}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (out, before) = (folder.path().join("out"), children());
        let process = spawn("/bin/cat", &group, &out).unwrap();
        super::reap(process.pid);
        let said = fs::read_to_string(&out).unwrap();
        assert!(
            said.lines().any(|line| line.starts_with("0::") && line.ends_with(&name)),
            "{said}"
        );
        assert!(spawn("/no/such/program", &group, &out).is_err());
        assert_eq!(children(), before);
        fs::remove_dir(&group).unwrap();
    }
}
