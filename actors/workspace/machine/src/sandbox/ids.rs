//! Ids of a sandbox: a range of the host's users and groups that nobody else has, one to each machine.
//!
//! Users of the sandbox are 0 to 65,535, in one extent, as in most containers. On the host they are
//! the machine's range, so what they own is nobody's anywhere else. A volume outlives machines: its
//! files have ids of the first range, which no machine has, and root's are root's, as they are where
//! only root is mapped.
//!
//! The resource limits of what runs in a sandbox are beside them: those that count for an id.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use hivekeep_confine::idmap::{Extent, NamespaceOwner, namespace_of, owned_namespace};
use rustix::process::{Resource, getrlimit};

use crate::options::{MachineUser, Options};

/// Number of ids of each range.
pub(crate) const IDS: u32 = 65_536;
/// Last id: higher ones, -1 among them, are negative to programs that take an id for a signed number.
const LAST: u32 = i32::MAX as u32 - IDS;
/// Databases of ids that are given to somebody, and in which field of a line the first of them is, and
/// their number, if it is not one alone.
const GIVEN: [(&str, usize, Option<usize>); 5] = [
    ("passwd", 2, None),
    ("passwd", 3, None),
    ("group", 2, None),
    ("subuid", 1, Some(2)),
    ("subgid", 1, Some(2)),
];

/// The ranges of a daemon's machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SandboxIds {
    first: u32,
    machines: u32,
    max_processes: u32,
}

impl SandboxIds {
    /// Finds whether the configured ranges are available. Blocks for some small files.
    ///
    /// # Errors
    /// Why there are none, for people.
    pub(crate) fn find(options: &Options) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root maps the ids of a mount".into());
        }
        Self::find_beside(options, Path::new("/etc"))
    }

    fn find_beside(options: &Options, etc: &Path) -> Result<Self, String> {
        let (first, machines) = (options.sandbox_first_id, options.machine_uid_count);
        if first == 0 {
            return Err("workspace.driver.sandbox_first_id is 0".into());
        }
        // The volumes' range, one for each machine, and that of programs on the host.
        let end = machines.checked_add(2).and_then(|ranges| ranges.checked_mul(IDS));
        let end = end.and_then(|count| first.checked_add(count)).filter(|end| *end <= LAST);
        let Some(end) = end else {
            return Err(format!("{machines} ranges from {first} on go beyond {LAST}"));
        };
        let overlaps = |from: u32, count: u32| from < end && from.saturating_add(count) > first;
        if overlaps(options.machine_first_uid, machines) || overlaps(0, 1) {
            return Err(format!("ids from {first} on are users of virtual machines"));
        }
        for (file, from, count) in GIVEN {
            let text = match fs::read_to_string(etc.join(file)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                read => read.map_err(|error| format!("/etc/{file}: {error}"))?,
            };
            if let Some(line) = text.lines().find(|line| given(line, from, count, overlaps)) {
                let whose = line.split(':').next().unwrap_or_default();
                return Err(format!("ids from {first} on are {whose:.80}'s by /etc/{file}"));
            }
        }
        Ok(Self { first, machines, max_processes: options.sandbox_max_processes })
    }

    /// Number of machines that have a range, and the first id of all.
    pub(crate) fn ranges(&self) -> (u32, u32) {
        (self.machines, self.first)
    }

    /// First id of the range behind all machines', which programs of the operator's have.
    fn of_programs(&self) -> u32 {
        self.first + (self.machines + 1) * IDS
    }

    /// Root of the sandbox with this machine number; `None` beyond the ranges.
    pub(crate) fn root(&self, slot: u32) -> Option<MachineUser> {
        let first = self.first + (slot.checked_add(1)?).checked_mul(IDS)?;
        (slot < self.machines).then_some(MachineUser { uid: first, gid: first, switch: true })
    }

    /// User namespace of a sandbox. It is its root's of the host, so what the kernel counts for
    /// all of its users together is counted as that one's, and limited as one user is.
    pub(super) fn namespace(&self, root: MachineUser) -> io::Result<OwnedFd> {
        let owner = NamespaceOwner { user: root.ids(), limits: counted_limits(self.max_processes) };
        owned_namespace(own(root), &owner)
    }

    /// User namespace of a server of a volume, with the same map.
    pub(crate) fn servers_namespace(&self, root: MachineUser) -> io::Result<OwnedFd> {
        namespace_of(&[own(root)])
    }

    /// Map of a volume's mount: its users are the sandbox's.
    pub(crate) fn volume_namespace(&self, root: MachineUser) -> io::Result<OwnedFd> {
        let of_root = Extent { inside: 0, outside: root.uid, count: 1 };
        let others = Extent { inside: self.first + 1, outside: root.uid + 1, count: IDS - 1 };
        namespace_of(&[of_root, others])
    }
}

/// First of 65,536 ids of the host that no machine has, and nobody else: for programs of the operator's.
///
/// # Errors
/// Why there are none, for people.
pub fn ids_of_programs(options: &Options) -> Result<u32, String> {
    SandboxIds::find(options).map(|ids| ids.of_programs())
}

fn own(root: MachineUser) -> Extent {
    Extent { inside: 0, outside: root.uid, count: IDS }
}

/// True if a line gives ids that `overlaps`. What is malformed gives nothing.
fn given(
    line: &str,
    from: usize,
    count: Option<usize>,
    overlaps: impl Fn(u32, u32) -> bool,
) -> bool {
    let words: Vec<&str> = line.split(':').collect();
    let number = |field: usize| words.get(field).and_then(|word| word.trim().parse::<u32>().ok());
    let count = count.map_or(Some(1), number);
    number(from).zip(count).is_some_and(|(from, count)| count > 0 && overlaps(from, count))
}

/// Limits of setrlimit(2) besides that of processes. From Linux 5.14 on, the last three and the
/// limit of processes are counted per user namespace, and so do not reduce those of other processes
/// of the same user.
pub(super) const RLIMITS: [(&str, u64); 5] = [
    // The value that commands have in a VM.
    ("nofile", 65_536),
    // No core files; and not 0, for which the kernel still runs the host's core handler.
    ("core", 1),
    // The kernel's own defaults.
    ("memlock", 8 << 20),
    ("msgqueue", 819_200),
    // A small part of what the kernel gives a user of the host.
    ("sigpending", 4096),
];

/// Limits that a user namespace has as a whole, by their numbers; where the daemon has less, the limit stays
/// at that.
fn counted_limits(max_processes: u32) -> [(libc::c_uint, u64); 4] {
    let [_, _, (_, memlock), (_, msgqueue), (_, sigpending)] = RLIMITS;
    [
        (libc::RLIMIT_MEMLOCK, Resource::Memlock, memlock),
        (libc::RLIMIT_MSGQUEUE, Resource::Msgqueue, msgqueue),
        (libc::RLIMIT_SIGPENDING, Resource::Sigpending, sigpending),
        (libc::RLIMIT_NPROC, Resource::Nproc, max_processes.into()),
    ]
    .map(|(number, resource, most)| {
        (number, getrlimit(resource).maximum.unwrap_or(u64::MAX).min(most))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(etc: &Path, change: impl Fn(&mut Options)) -> Result<SandboxIds, String> {
        let mut options = Options::default();
        change(&mut options);
        SandboxIds::find_beside(&options, etc)
    }

    #[test]
    fn ranges_are_apart_from_each_other_and_from_the_volumes() {
        let etc = tempfile::tempdir().unwrap();
        let ids = found(etc.path(), |_| {}).unwrap();
        let firsts: Vec<u32> = (0..900).map(|slot| ids.root(slot).unwrap().uid).collect();
        assert!(firsts.windows(2).all(|two| two[1] - two[0] == IDS));
        assert_eq!(firsts[0] - ids.ranges().1, IDS, "the first range is the volumes'");
        assert!(ids.root(900).is_none() && ids.root(u32::MAX).is_none());
        assert_eq!(ids.of_programs(), firsts[899] + IDS);
        assert!(ids.of_programs().checked_add(IDS).is_some_and(|end| end < i32::MAX as u32));
    }

    #[test]
    fn ids_that_are_somebodys_are_not_taken() {
        let etc = tempfile::tempdir().unwrap();
        let first = Options::default().sandbox_first_id;
        let last = first + 902 * IDS - 1;
        let with = |file: &str, line: String| {
            fs::write(etc.path().join(file), format!("root:x:0:0::/root:/bin/sh\n\n{line}\n"))
                .unwrap();
            let found = found(etc.path(), |_| {});
            fs::remove_file(etc.path().join(file)).unwrap();
            found
        };
        for (file, line) in [
            ("passwd", format!("ada:x:{first}:100::/:/bin/sh")),
            ("passwd", format!("ada:x:1000:{last}::/:/bin/sh")),
            ("group", format!("ada:x:{last}:")),
            ("subuid", format!("ada:{}:65537", first - 65_536)),
            ("subgid", format!("ada:{last}:1")),
            ("subuid", "ada:100000:4294967295".to_owned()),
        ] {
            let why = with(file, line.clone()).unwrap_err();
            assert!(why.contains("ada") && why.contains(file), "{line}: {why}");
        }
        for (file, line) in [
            ("passwd", "ada:x:1000:1000::/:/bin/sh".to_owned()),
            ("group", format!("ada:x:{}:", last + 1)),
            ("subuid", format!("ada:{}:65536", first - 65_536)),
            ("subuid", format!("ada:{first}:0")),
            ("subuid", "nonsense".to_owned()),
        ] {
            assert!(with(file, line.clone()).is_ok(), "{line}");
        }
    }

    #[test]
    fn ranges_that_cannot_be_are_refused() {
        let etc = tempfile::tempdir().unwrap();
        let refused = |first: u32, count: u32| {
            let change = |options: &mut Options| {
                (options.sandbox_first_id, options.machine_uid_count) = (first, count);
            };
            found(etc.path(), change).is_err()
        };
        assert!(!refused(0x7800_0000, 900));
        for (first, count) in
            [(0, 900), (0x7fff_0000, 900), (0x7800_0000, 65_535), (1, u32::MAX), (60_000, 1)]
        {
            assert!(refused(first, count), "{first} {count}");
        }
    }
}
