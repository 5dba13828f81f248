//! Subordinate users (subuid(5)): users of the host that a daemon of an ordinary user may give to
//! its sandboxes, one to each.
//!
//! Operations on their files are run in one user namespace, whose root is the daemon's user and
//! whose ids from 1 on are the range. newuidmap(1) and newgidmap(1) write its maps: they alone may.
//! The namespace belongs to the daemon's user, who therefore may signal whatever runs in it and in
//! the sandboxes' namespaces below.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hivekeep_confine::idmap::namespace_mapped_by;

use crate::options::{self, MachineUser};

/// Advice on how to get such users.
pub(crate) const REMEDY: &str = "run the daemon as root, as docs/hivekeep.service does, \
    or apt-get install uidmap and give the daemon's user a range for each sandbox: \
    usermod --add-subuids 200000-200999 --add-subgids 200000-200999 USER";
/// Time limit of the tools that look up and map ids.
const BRIEF: Duration = Duration::from_secs(10);
/// Time limit of a walk over a tree, on a slow disk.
const WALK: Duration = Duration::from_mins(10);

/// Range of ids, and the namespace that maps it. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Subordinates {
    namespace: Arc<OwnedFd>,
    first_uid: u32,
    first_gid: u32,
    count: u32,
}

/// User in the namespace, as its sandbox's program becomes it.
#[derive(Debug, Clone)]
pub(super) struct Within {
    pub(super) namespace: Arc<OwnedFd>,
    /// Id of user and group.
    pub(super) id: u32,
}

impl Subordinates {
    /// Finds those of the daemon's user, at most `most`. Blocks for some short programs.
    ///
    /// Legal before the first machine is started: a process that has switched users is "not
    /// dumpable", and nobody may map ids for it.
    ///
    /// # Errors
    /// Why there are none, for people.
    pub(crate) fn find(most: u32) -> Result<Self, String> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if uid == 0 {
            return Err("the daemon is root, and needs none".into());
        }
        for program in ["getsubids", "newuidmap", "newgidmap"] {
            let found = options::find_program(Path::new(program), "package uidmap");
            found.map_err(|error| error.to_string())?;
        }
        let name = output_of(Command::new("id").arg("-un"))?.trim().to_owned();
        // Fails where there is no entry.
        let listed = |command: &mut Command| output_of(command).ok().and_then(|said| range(&said));
        let users = listed(Command::new("getsubids").arg(&name));
        let users = users.ok_or_else(|| format!("{name} has no range in /etc/subuid"))?;
        let groups = listed(Command::new("getsubids").args(["-g", &name]));
        let groups = groups.ok_or_else(|| format!("{name} has no range in /etc/subgid"))?;
        let count = users.count.min(groups.count).min(most);
        let mut refusal = None;
        let namespace = namespace_mapped_by(|holder| {
            let maps = [("newuidmap", uid, users.first), ("newgidmap", gid, groups.first)];
            for (program, own, first) in maps {
                let map = format!("{holder} 0 {own} 1 1 {first} {count}");
                if let Err(why) = output_of(Command::new(program).args(map.split(' '))) {
                    refusal = Some(why);
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
            }
            Ok(())
        });
        let namespace = namespace.map_err(|error| refusal.unwrap_or_else(|| error.to_string()))?;
        let namespace = Arc::new(namespace);
        let found = Self { namespace, first_uid: users.first, first_gid: groups.first, count };
        // A security module may allow namespaces and refuse rights in them.
        let tried = found.run(Command::new("unshare").args(["--mount", "true"]));
        tried.map_err(|error| format!("a namespace of its users has no rights: {error}"))?;
        Ok(found)
    }

    /// Number of ids, and the first.
    pub(crate) fn range(&self) -> (u32, u32) {
        (self.count, self.first_uid)
    }

    /// User of the machine with this number; `None` beyond the range.
    pub(super) fn user(&self, slot: u32) -> Option<MachineUser> {
        let (uid, gid) = (self.first_uid.checked_add(slot)?, self.first_gid.checked_add(slot)?);
        (slot < self.count).then_some(MachineUser { uid, gid, switch: true })
    }

    /// User with this id on the host, if it is in the range.
    pub(super) fn user_of(&self, uid: u32) -> Option<MachineUser> {
        self.user(uid.checked_sub(self.first_uid)?)
    }

    /// Converts a user of the range to its form in the namespace.
    pub(super) fn within(&self, user: MachineUser) -> Option<Within> {
        let slot = user.uid.checked_sub(self.first_uid).filter(|slot| *slot < self.count)?;
        Some(Within { namespace: Arc::clone(&self.namespace), id: slot + 1 })
    }

    /// Removes a tree that users of the range may have made. Blocks.
    ///
    /// # Errors
    /// When something stays.
    pub(crate) fn remove(&self, tree: &Path) -> io::Result<()> {
        self.run(Command::new("rm").args(["-rf", "--one-file-system", "--"]).arg(tree))
    }

    /// Runs a program with all rights over files of the daemon's user and of the range. Blocks.
    ///
    /// # Errors
    /// When it fails, with what it says.
    pub(super) fn run(&self, command: &mut Command) -> io::Result<()> {
        let namespace = Arc::clone(&self.namespace);
        let enter = move || match unsafe {
            // SAFETY: takes no pointers; the descriptor lives as long as the closure.
            libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWUSER)
        } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: `enter` makes one system call, and an error from errno: it allocates nothing.
        unsafe { command.pre_exec(enter) };
        output_within(command, WALK).map(drop).map_err(io::Error::other)
    }
}

/// Runs a program and returns its output; its complaint if it fails. Blocks.
fn output_of(command: &mut Command) -> Result<String, String> {
    output_within(command, BRIEF)
}

fn output_within(command: &mut Command, limit: Duration) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |why: String| format!("{program}: {why}");
    command.stdin(Stdio::null());
    let output =
        options::output_within(command, limit).map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(failed(match complaint.lines().next() {
            Some(line) => line.to_owned(),
            None => output.status.to_string(),
        }));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Consecutive ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u32,
    count: u32,
}

/// Returns the largest of those that getsubids(1) lists: `0: NAME FIRST COUNT`.
fn range(listed: &str) -> Option<Range> {
    let range = |line: &str| {
        let mut words = line.split_whitespace().skip(2).map(|word| word.parse::<u32>().ok());
        let (first, count) = (words.next()??, words.next()??);
        (first > 0 && count > 0).then_some(Range { first, count })
    };
    listed.lines().filter_map(range).max_by_key(|range| range.count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_range_is_taken_and_nonsense_is_none() {
        let listed = "0: hk 100000 1000\n1: hk 300000 65536\n";
        assert_eq!(range(listed), Some(Range { first: 300_000, count: 65_536 }));
        for none in ["", "0: hk", "0: hk 100000", "0: hk x 5", "0: hk 100000 0", "0: hk 0 5"] {
            assert_eq!(range(none), None, "{none}");
        }
    }

    #[test]
    fn each_number_has_a_user_of_the_range_and_no_other() {
        let namespace = Arc::new(std::fs::File::open("/proc/self/ns/user").unwrap().into());
        let range = Subordinates { namespace, first_uid: 1000, first_gid: 2000, count: 3 };
        let user = range.user(2).unwrap();
        assert_eq!((user.uid, user.gid, user.switch), (1002, 2002, true));
        assert_eq!(range.within(user).unwrap().id, 3, "1 is the first's");
        assert_eq!(range.user_of(1002), Some(user));
        for beyond in [999, 1003] {
            assert_eq!(range.user_of(beyond), None, "{beyond}");
        }
        assert!(range.user(3).is_none() && range.user(u32::MAX).is_none());
    }
}
