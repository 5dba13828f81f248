//! Detection of the folders where a controller's groups can be made, and limit files of the two hierarchies.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{CgroupLimits, Controller, Place};
use crate::facts::CgroupVersion;

/// Name of the leaf that systemd's `DelegateSubgroup=daemon` puts the daemon into.
const DAEMON_LEAF: &str = "daemon";

/// Kernel's description of mounts and of the daemon's own groups.
#[derive(Debug, Clone)]
pub struct CgroupMounts {
    /// Contents of `/proc/self/mountinfo`.
    pub mountinfo: String,
    /// Contents of `/proc/self/cgroup`.
    pub own: String,
    /// True if groups may be made at the top of the unified hierarchy.
    pub root: bool,
}

impl CgroupMounts {
    /// Reads the description of this process.
    pub fn read() -> Self {
        Self {
            mountinfo: fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(),
            own: fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
            root: rustix::process::geteuid().is_root(),
        }
    }

    fn mounts(&self) -> impl Iterator<Item = Mount<'_>> {
        self.mountinfo.lines().filter_map(Mount::parse)
    }

    /// Own group in the hierarchy with this controller; `""` means the unified one.
    fn own_path(&self, controller: &str) -> Option<&str> {
        self.own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
            names.split(',').any(|name| name == controller).then_some(path)
        })
    }
}

/// Mount of a cgroup hierarchy.
struct Mount<'a> {
    /// Part of the hierarchy that is mounted.
    root: &'a str,
    point: PathBuf,
    unified: bool,
    /// Mount options; for v1 the controllers are among these.
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, _, options) = (right.next()?, right.next()?, right.next()?);
        let unified = match kind {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        // Blanks are written as octal escapes.
        Some(Self { root, point: point.replace("\\040", " ").into(), unified, options })
    }

    /// Folder of a group. A group outside the mounted part (a container's view) is taken as the
    /// mounted part itself.
    fn folder(&self, group: &str) -> PathBuf {
        let inside = Path::new(group).strip_prefix(self.root).unwrap_or(Path::new(""));
        self.point.join(inside.strip_prefix("/").unwrap_or(inside))
    }
}

/// Finds the controller, v2 first, and makes `hivekeep-TAG` there.
pub(super) fn place(
    host: &CgroupMounts,
    controller: Controller,
    tag: &str,
) -> Result<Place, String> {
    let mut why = format!("no cgroup hierarchy with the {} controller", controller.name());
    if let Some(mount) = host.mounts().find(|mount| mount.unified) {
        match unified(host, &mount, controller, tag) {
            Ok(Some(base)) => return Ok(Place { version: CgroupVersion::V2, base }),
            Ok(None) => {}
            Err(reason) => why = reason,
        }
    }
    if controller == Controller::Freezer {
        return Err(why);
    }
    let v1 = host
        .mounts()
        .find(|mount| !mount.unified && mount.options.split(',').any(|o| o == controller.name()));
    let Some(mount) = v1 else { return Err(why) };
    let own = host.own_path(controller.name()).unwrap_or("/");
    let base = mount.folder(own).join(format!("hivekeep-{tag}"));
    make_dir(&base)?;
    Ok(Place { version: CgroupVersion::V1, base })
}

/// Folder in the unified hierarchy; `Ok(None)` if it does not have the controller at all.
fn unified(
    host: &CgroupMounts,
    mount: &Mount<'_>,
    controller: Controller,
    tag: &str,
) -> Result<Option<PathBuf>, String> {
    let has = |dir: &Path, file: &str| {
        let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
        text.split_ascii_whitespace().any(|name| name == controller.name())
    };
    // Freezing is no controller there: every group but the topmost has it.
    let is_core = controller == Controller::Freezer;
    if !is_core && !has(&mount.point, "cgroup.controllers") {
        return Ok(None);
    }
    // Root makes its groups at the top, where processes and sub-groups may coexist. Others need a
    // delegated group, with the daemon in a leaf of it.
    let parent = match (host.root, host.own_path("")) {
        (true, _) => mount.point.clone(),
        (false, Some(own)) => {
            let own = mount.folder(own);
            if own.file_name().is_some_and(|leaf| leaf == DAEMON_LEAF) {
                own.parent().unwrap_or(&own).to_owned()
            } else {
                own
            }
        }
        (false, None) => return Err("the daemon is in no group of the unified hierarchy".into()),
    };
    let enable = |dir: &Path| -> Result<(), String> {
        if is_core || has(dir, "cgroup.subtree_control") {
            return Ok(());
        }
        let file = dir.join("cgroup.subtree_control");
        fs::write(&file, format!("+{}", controller.name())).map_err(|error| {
            format!(
                "{}: {error}; run the daemon in a delegated cgroup \
                 (systemd: Delegate=yes, DelegateSubgroup={DAEMON_LEAF})",
                file.display()
            )
        })
    };
    enable(&parent)?;
    let base = parent.join(format!("hivekeep-{tag}"));
    make_dir(&base)?;
    enable(&base)?;
    Ok(Some(base))
}

fn make_dir(dir: &Path) -> Result<(), String> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("{}: {error}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Accounting period of the scheduler; the kernel's default.
const PERIOD_US: u64 = 100_000;

/// Writes the limit and reads it back; returns the enforcing setting.
pub(super) fn set(
    version: CgroupVersion,
    controller: Controller,
    dir: &Path,
    limits: &CgroupLimits,
) -> io::Result<String> {
    let quota_us = u64::from(limits.vcpus) * PERIOD_US;
    let (word, file, value) = match (version, controller) {
        (CgroupVersion::V2, Controller::Memory) => {
            // Otherwise the group would swap instead of reaching its limit; the file is absent
            // without swap.
            let _ = fs::write(dir.join("memory.swap.max"), "0");
            let most = limits.memory_bytes.map_or_else(|| "max".into(), |most| most.to_string());
            ("cgroup v2", "memory.max", most)
        }
        (CgroupVersion::V2, Controller::Cpu) => {
            ("cgroup v2", "cpu.max", format!("{quota_us} {PERIOD_US}"))
        }
        (CgroupVersion::V2, Controller::Pids) => ("cgroup v2", "pids.max", limits.pids.to_string()),
        (CgroupVersion::V1, Controller::Memory) => {
            let most = limits.memory_bytes.ok_or(io::ErrorKind::Unsupported)?;
            ("cgroup v1", "memory.limit_in_bytes", most.to_string())
        }
        (CgroupVersion::V1, Controller::Cpu) => {
            write(dir, "cpu.cfs_period_us", &PERIOD_US.to_string())?;
            ("cgroup v1", "cpu.cfs_quota_us", quota_us.to_string())
        }
        (CgroupVersion::V1, Controller::Pids) => ("cgroup v1", "pids.max", limits.pids.to_string()),
        (_, Controller::Freezer) => return Ok("cgroup v2 cgroup.freeze".to_owned()),
    };
    write(dir, file, &value)?;
    Ok(format!("{word} {file} = {value}"))
}

fn write(dir: &Path, file: &str, value: &str) -> io::Result<()> {
    let path = dir.join(file);
    fs::write(&path, value)?;
    let kept = fs::read_to_string(&path)?;
    // The kernel rounds memory to pages, downwards.
    let near = kept.trim() == value
        || matches!((kept.trim().parse::<u64>(), value.parse::<u64>()),
            (Ok(kept), Ok(value)) if kept <= value && value - kept < 65_536);
    if near { Ok(()) } else { Err(io::Error::other(format!("{file} became {}", kept.trim()))) }
}
