//! Giving up rights, for good and for everything started later.

use std::fs;
use std::io;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

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
pub(super) fn capabilities() -> io::Result<()> {
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
pub(super) fn rlimits(limits: &[(Resource, u64)]) -> io::Result<()> {
    for (resource, value) in limits {
        let value = getrlimit(*resource).maximum.unwrap_or(u64::MAX).min(*value);
        setrlimit(*resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    Ok(())
}

/// Sets the limits of this user namespace on what the kernel counts by namespace and user: no further
/// namespaces, which stands behind the filter of system calls, and so many inotify instances, which the
/// host's user would have fewer of. Only `CAP_SYS_RESOURCE` changes them.
pub(super) fn counts(inotify_instances: Option<u32>) -> io::Result<()> {
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
pub(super) fn landlock() -> Result<&'static str, RulesetError> {
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
