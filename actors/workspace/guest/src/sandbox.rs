//! PID 1 of a namespace sandbox.
//!
//! bubblewrap makes the namespaces; this role, first process in them, makes the
//! root and then gives up every right that a contained root does not need:
//!
//! ```text
//! overlay root, /proc, /dev, /run ─► pivot_root ─► counts ─► capabilities ─► rlimits
//!     ─► no_new_privs ─► Landlock ─► seccomp ─► console ─► keep the agent alive, reap
//! ```
//! A driver starts it as an unprivileged user, with the socket as descriptor N:
//!
//! ```text
//! bwrap --unshare-user --uid 0 --gid 0
//!   --unshare-pid --unshare-net --unshare-ipc --unshare-uts
//!   --unshare-cgroup-try --cap-add ALL --as-pid-1 --new-session
//!   --hostname NAME --proc /proc --dev-bind /dev /dev --dir /newroot
//!   --ro-bind LOWER /lower --bind DISK /disk --ro-bind GUEST /hivekeep-guest
//!   /hivekeep-guest sandbox --lower /lower --upper /disk/upper --work /disk/work
//!   --unix-fd N --token-hash HEX --peer-uid UID_OF_THE_DAEMON
//!   --machine-id HEX --tag TEXT --console-fd N --tmpfs-mb N --rlimit NAME=N
//!   [--volume DIR PATH]... [--no-set-id]
//! ```
//! Without the first line it is root of a user namespace that has other users too. `LOWER` should belong to
//! that user as well: what belongs to a user whom the namespace does not know can be read there but not
//! changed. `DISK` holds the empty folders `upper` and `work`, owned by that user. The uid is the host's
//! number for it; it is translated to what the sandbox's user namespace shows. A killed sandbox is SIGKILL
//! for this process: its PID namespace dies with it.

mod root;

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use hivekeep_confine::syscalls::{self, FilterSet};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::agent::daemon::RoleFailure;
use crate::identity;
use crate::init::supervisor;
use crate::settings::{RUN_DIR, SandboxArgs};
use crate::sys::descriptors;

/// Makes the sandbox and stays its PID 1 until a shutdown is ordered.
///
/// # Errors
/// When any step fails: nothing runs in half a sandbox.
pub fn run(args: SandboxArgs) -> Result<ExitCode, RoleFailure> {
    if std::process::id() != 1 {
        return Err("sandbox is only for PID 1 of a PID namespace (bwrap --as-pid-1)".into());
    }
    // The caller's umask may be stricter than what commands expect.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let peers = translated(&args.peer_uids)?;
    let listener = descriptors::inherited(args.unix_fd)?;
    let kept = descriptors::handed_on(&listener)?;
    let console = args.console_fd.map(descriptors::inherited).transpose()?;
    root::enter(&args.lower, &args.upper, &args.work, &args.volumes, args.tmpfs_mb)?;
    if let Some(id) = &args.machine_id {
        identity::first_machine_id(Path::new(identity::MACHINE_ID), id)?;
    }
    std::fs::create_dir_all(RUN_DIR)?;
    std::fs::write(Path::new(RUN_DIR).join("boot_id"), boot_id()?)?;
    counts(args.inotify_instances)?;
    capabilities()?;
    rlimits(&args.rlimits)?;
    rustix::thread::set_no_new_privs(true)?;
    let landlock = landlock()?;
    syscalls::confine(match args.no_set_id {
        true => FilterSet::WithoutSetId,
        false => FilterSet::Contained,
    })?;
    crate::say!("sandbox: landlock {landlock}; seccomp and capabilities in force");
    if let Some(console) = console {
        // Everything in the sandbox can open the output of what runs from here on, so it must not be a file
        // of the host's.
        rustix::stdio::dup2_stdout(&console)?;
        rustix::stdio::dup2_stderr(&console)?;
    }
    let mut words = vec!["--unix-fd".to_owned(), kept.to_string()];
    words.extend(["--token-hash".to_owned(), args.token_hash, "--place".into(), "sandbox".into()]);
    for uid in peers {
        words.extend(["--peer-uid".to_owned(), uid.to_string()]);
    }
    let words: Vec<CString> = words.into_iter().map(CString::new).collect::<Result<_, _>>()?;
    let grace =
        supervisor::run(&supervisor::agent_program(root::GUEST, &words), Path::new(RUN_DIR), || {});
    supervisor::end_everything(grace);
    Ok(ExitCode::SUCCESS)
}

/// Boot id of the sandbox, new at each start; the kernel's boot id is the host's.
fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

/// Uids that peer credentials show inside the sandbox for users of the host.
fn translated(uids: &[u32]) -> std::io::Result<Vec<u32>> {
    let map = std::fs::read_to_string("/proc/self/uid_map")?;
    let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid")?;
    let overflow = overflow.trim().parse().unwrap_or(65_534);
    Ok(uids.iter().map(|uid| inside(&map, *uid).unwrap_or(overflow)).collect())
}

fn inside(uid_map: &str, uid: u32) -> Option<u32> {
    uid_map.lines().find_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (Some(Ok(inner)), Some(Ok(outer)), Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return None;
        };
        let offset = uid.checked_sub(outer).filter(|offset| *offset < count)?;
        inner.checked_add(offset)
    })
}

/// Folder of the namespace's limits, see namespaces(7).
const COUNTS: &str = "/proc/sys/user";

/// Capabilities that a contained root may keep: everything here acts on its own files, processes and sockets
/// only.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT);

/// Drops every other capability from every set, the bounding set included.
fn capabilities() -> io::Result<()> {
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A kernel older than the capability.
            Err(rustix::io::Errno::INVAL) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let sets =
        CapabilitySets { effective: KEPT, permitted: KEPT, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Sets soft and hard limits alike; a lower hard limit of this process stays.
fn rlimits(limits: &[(Resource, u64)]) -> io::Result<()> {
    for (resource, value) in limits {
        let value = getrlimit(*resource).maximum.unwrap_or(u64::MAX).min(*value);
        setrlimit(*resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    Ok(())
}

/// Sets the limits of this user namespace on what the kernel counts by namespace and user: no further
/// namespaces, which stands behind the filter of system calls, and so many inotify instances, which the
/// host's user would have fewer of. Only `CAP_SYS_RESOURCE` changes them.
fn counts(inotify_instances: Option<u32>) -> io::Result<()> {
    for entry in fs::read_dir(COUNTS)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with("_namespaces") {
            fs::write(&path, "0")?;
        }
    }
    let Some(most) = inotify_instances else { return Ok(()) };
    fs::write(format!("{COUNTS}/max_inotify_instances"), most.to_string())
}

/// Applies Landlock as far as this kernel has it; returns how far. Below the root everything stays allowed
/// but device ioctls; Landlock adds the denial of every mount operation and, where known, no signals and no
/// abstract sockets to the outside.
fn landlock() -> Result<&'static str, RulesetError> {
    let abi = ABI::V6;
    let all = AccessFs::from_all(abi);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(abi))?
        .create()?;
    let places = [("/", all & !AccessFs::IoctlDev), ("/dev/pts", all), ("/dev/tty", all)];
    for (place, access) in places {
        if let Ok(fd) = PathFd::new(place) {
            let file = !std::path::Path::new(place).is_dir();
            let access = if file { access & AccessFs::from_file(abi) } else { access };
            rules = rules.add_rule(PathBeneath::new(fd, access))?;
        }
    }
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => "fully enforced",
        RulesetStatus::PartiallyEnforced => "partially enforced (older kernel)",
        RulesetStatus::NotEnforced => "not available in this kernel",
    })
}

#[cfg(test)]
mod tests {
    use super::inside;

    #[test]
    fn users_are_translated_by_the_map() {
        let map = "         0      64100          1\n       100      70000        10\n";
        assert_eq!(inside(map, 64_100), Some(0));
        assert_eq!(inside(map, 70_003), Some(103));
        assert_eq!(inside(map, 0), None);
    }
}
