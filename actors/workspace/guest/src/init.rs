//! PID 1 of a VM.
//!
//! ```text
//! initramfs /init ─► modules ─► wait for the disk ─► mount it ─► move into it
//!     ─► mount the rest ─► keep the agent alive, reap ─► (order) ─► end all ─► power off
//! ```
//! Keys of the kernel command line: `hivekeep.token_hash=` 64 hexadecimal digits,
//! `hivekeep.carrier=` as the agent's `--carrier`, `hivekeep.root=` a disk
//! (default `/dev/vda`), `hivekeep.machine_id=` the machine's id, which is taken if it has none
//! yet, or if its disk began as another machine's (the word `hivekeep.fork`), `hivekeep.volumes`
//! where virtio-fs is needed.
//!
//! Modules that neither the disk nor the link needs are loaded when the agent runs, so that the first answer
//! does not wait for them.

pub mod supervisor;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount, mount_move};
use rustix::system::{RebootCommand, reboot};

use crate::agent::daemon::RoleFailure;
use crate::identity;
use crate::settings::RUN_DIR;

/// Where the agent keeps commands' cgroups.
const CGROUP_ROOT: &str = "/sys/fs/cgroup/hivekeep";
/// How long a failure stays readable on the console before the power goes.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A step of the boot failed.
#[derive(Debug, thiserror::Error)]
#[error("init: {step}: {cause}")]
pub struct Error {
    step: String,
    #[source]
    cause: io::Error,
}

pub(crate) fn failed(step: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let step = step.into();
    move |cause| Error { step, cause }
}

/// Settings of the kernel command line.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    token_hash: String,
    carrier: String,
    root: String,
    machine_id: Option<String>,
    is_fork: bool,
    has_volumes: bool,
}

impl Asked {
    fn of(cmdline: &str) -> Self {
        let key = |name: &str| {
            cmdline
                .split_ascii_whitespace()
                .find_map(|word| word.strip_prefix(name))
                .map(str::to_owned)
        };
        let has = |wanted: &str| cmdline.split_ascii_whitespace().any(|word| word == wanted);
        Self {
            token_hash: key("hivekeep.token_hash=").unwrap_or_default(),
            carrier: key("hivekeep.carrier=").unwrap_or_else(|| "virtio-serial".into()),
            root: key("hivekeep.root=").unwrap_or_else(|| "/dev/vda".into()),
            machine_id: key("hivekeep.machine_id="),
            is_fork: has("hivekeep.fork"),
            has_volumes: has("hivekeep.volumes"),
        }
    }
}

/// Boots the machine and never returns while it lives.
///
/// # Errors
/// Only when this is not PID 1; a boot that fails is reported on the console and the machine powers off.
pub fn run() -> Result<ExitCode, RoleFailure> {
    if std::process::id() != 1 {
        return Err("init is only for PID 1 of a machine".into());
    }
    let grace = match boot() {
        Ok((asked, later)) => {
            let agent = supervisor::agent_program(c"/proc/self/exe", &agent_words(&asked));
            supervisor::run(&agent, Path::new(RUN_DIR), || later.load_beside())
        }
        Err(error) => {
            crate::say!("{error}");
            std::thread::sleep(LAST_WORDS);
            Duration::ZERO
        }
    };
    supervisor::end_everything(grace);
    power_off()
}

fn boot() -> Result<(Asked, Later), Error> {
    early()?;
    let cmdline = std::fs::read_to_string("/proc/cmdline").map_err(failed("command line"))?;
    let asked = Asked::of(&cmdline);
    let later = load_needed(Path::new("/lib/hivekeep"), &asked.carrier, asked.has_volumes);
    enter_root(Path::new(&asked.root))?;
    late();
    if let Some(id) = &asked.machine_id
        && let Err(error) = identity::machine_id_at_boot(id, asked.is_fork)
    {
        crate::say!("init: machine id: {error}");
    }
    if let Err(error) = crate::sys::loopback_up() {
        crate::say!("init: loopback: {error}");
    }
    Ok((asked, later))
}

fn agent_words(asked: &Asked) -> Vec<CString> {
    let mut words = vec!["--carrier", &asked.carrier, "--token-hash", &asked.token_hash];
    words.extend(["--place", "vm"]);
    let usable = Path::new("/sys/fs/cgroup/cgroup.kill").exists()
        || Path::new("/sys/fs/cgroup/cgroup.procs").exists();
    if usable {
        words.extend(["--cgroup-root", CGROUP_ROOT]);
    }
    words.into_iter().filter_map(|word| CString::new(word).ok()).collect()
}

/// Powers off; the disk is left clean, synced and read-only.
fn power_off() -> ! {
    rustix::fs::sync();
    if let Err(error) = rustix::mount::mount_remount("/", MountFlags::RDONLY, c"") {
        crate::say!("init: cannot make the root read-only: {error}");
    }
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    // A machine without a power switch: its hypervisor takes a restart for the end.
    let _ = reboot(RebootCommand::Restart);
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// How long the disk may take to appear.
const DISK_WAIT: Duration = Duration::from_secs(30);
const NEW_ROOT: &str = "/newroot";

fn try_mount(kind: &str, at: &str, flags: MountFlags, data: &CStr) -> io::Result<()> {
    std::fs::create_dir_all(at)?;
    Ok(mount(kind, at, kind, flags, data)?)
}

/// Mounts what the boot itself needs, and puts stdio on the console.
fn early() -> Result<(), Error> {
    let safe = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    try_mount("proc", "/proc", safe, c"").map_err(failed("mount /proc"))?;
    try_mount("sysfs", "/sys", safe, c"").map_err(failed("mount /sys"))?;
    let dev = MountFlags::NOSUID;
    try_mount("devtmpfs", "/dev", dev, c"mode=0755").map_err(failed("mount /dev"))?;
    if let Ok(console) = std::fs::File::options().read(true).write(true).open("/dev/console") {
        let _ = rustix::stdio::dup2_stdin(&console);
        let _ = rustix::stdio::dup2_stdout(&console);
        let _ = rustix::stdio::dup2_stderr(&console);
    }
    Ok(())
}

/// Waits for the disk, mounts it and makes it the root.
fn enter_root(disk: &Path) -> Result<(), Error> {
    let deadline = Instant::now() + DISK_WAIT;
    while !disk.exists() {
        if Instant::now() > deadline {
            let cause = io::ErrorKind::NotFound.into();
            return Err(failed(format!("wait for {}", disk.display()))(cause));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let at = Path::new(NEW_ROOT);
    std::fs::create_dir_all(at).map_err(failed(NEW_ROOT))?;
    mount(disk, at, "ext4", MountFlags::NOATIME, c"")
        .map_err(|error| failed(format!("mount {}", disk.display()))(error.into()))?;
    for name in ["proc", "sys", "dev"] {
        let target = at.join(name);
        std::fs::create_dir_all(&target).map_err(failed(format!("make /{name}")))?;
        mount_move(Path::new("/").join(name), &target)
            .map_err(|error| failed(format!("move /{name}"))(error.into()))?;
    }
    let switch = || -> io::Result<()> {
        std::env::set_current_dir(at)?;
        mount_move(".", "/")?;
        rustix::process::chroot(".")?;
        std::env::set_current_dir("/")
    };
    switch().map_err(failed("enter the new root"))
}

/// Mounts what commands expect. A mount that fails is reported; the rest is still useful.
fn late() {
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    let mounts: [(&str, &str, MountFlags, &CStr); 3] = [
        ("devpts", "/dev/pts", MountFlags::NOSUID, c"gid=5,mode=620,ptmxmode=666"),
        ("tmpfs", "/dev/shm", quiet, c"mode=1777"),
        ("tmpfs", "/run", quiet, c"mode=755"),
    ];
    for (kind, at, flags, data) in mounts {
        if let Err(error) = try_mount(kind, at, flags, data) {
            crate::say!("init: mount {at}: {error}");
        }
    }
    // With favordynmods joining a cgroup does not wait for an RCU grace period;
    // kernels before 6.0 do not know the option.
    let safe = quiet | MountFlags::NOEXEC;
    let cgroup = |data| try_mount("cgroup2", "/sys/fs/cgroup", safe, data);
    if let Err(error) = cgroup(c"favordynmods").or_else(|_| cgroup(c"")) {
        crate::say!("init: mount /sys/fs/cgroup: {error}");
    }
}

/// Modules loaded after the agent's start; what needs one waits for it, see `network::interface`.
const LATER: [&str; 7] = [
    "failover.ko",
    "net_failover.ko",
    "virtio_net.ko",
    "overlay.ko",
    "qemu_fw_cfg.ko",
    "fuse.ko",
    "virtiofs.ko",
];
/// Modules that only a machine with volumes needs.
const OF_VOLUMES: [&str; 2] = ["fuse.ko", "virtiofs.ko"];
/// Part of the names of AF_VSOCK's modules.
const VSOCK: &str = "vsock";

/// Modules that are still to be loaded. They are open, since their folder is out of reach once the
/// disk is the root.
#[derive(Debug)]
struct Later(Vec<(String, File)>);

/// Loads what `DIR/modules` lists, one file name of `DIR` a line, but for what can wait. A module that fails
/// is reported and skipped: the disk may do without it, or its absence is the next error.
fn load_needed(dir: &Path, carrier: &str, has_volumes: bool) -> Later {
    let mut later = Vec::new();
    let list = match std::fs::read_to_string(dir.join("modules")) {
        Ok(list) => list,
        // A kernel with everything built in needs none.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Later(later),
        Err(error) => {
            crate::say!("init: module list: {error}");
            return Later(later);
        }
    };
    let is_wanted = |name: &&str| !name.is_empty() && (has_volumes || !OF_VOLUMES.contains(name));
    for name in list.lines().map(str::trim).filter(is_wanted) {
        let opened = File::open(dir.join(name)).map(|file| {
            if can_wait(name, carrier) {
                later.push((name.to_owned(), file));
            } else {
                load(name, &file);
            }
        });
        if let Err(error) = opened {
            crate::say!("init: module {name}: {error}");
        }
    }
    Later(later)
}

fn can_wait(name: &str, carrier: &str) -> bool {
    LATER.contains(&name) || (name.contains(VSOCK) && carrier != VSOCK)
}

impl Later {
    /// Loads the modules in a thread that gives way to the agent, but not for long to a busy command.
    fn load_beside(self) {
        let load_all = move || {
            // A failure to lower the priority does not keep the modules from being loaded.
            let _ = rustix::process::nice(10);
            self.0.iter().for_each(|(name, file)| load(name, file));
        };
        if let Err(error) = std::thread::Builder::new().name("modules".into()).spawn(load_all) {
            crate::say!("init: the later modules: {error}");
        }
    }
}

fn load(name: &str, module: &File) {
    match rustix::system::finit_module(module, c"", 0) {
        Err(rustix::io::Errno::EXIST) | Ok(()) => {}
        Err(error) => crate::say!("init: module {name}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_among_others_and_have_defaults() {
        let asked = Asked::of("quiet hivekeep.token_hash=ab panic=-1 hivekeep.root=/dev/vdb\n");
        assert_eq!((asked.token_hash.as_str(), asked.root.as_str()), ("ab", "/dev/vdb"));
        assert_eq!(asked.carrier, "virtio-serial");
        assert_eq!(Asked::of("").root, "/dev/vda");
    }

    #[test]
    fn the_disk_and_the_link_wait_for_no_other_module() {
        for needed in ["virtio_mmio.ko", "virtio_blk.ko", "virtio_console.ko", "virtio_rng.ko"] {
            assert!(!can_wait(needed, "virtio-serial"), "{needed}");
        }
        for vsock in ["vsock.ko", "vmw_vsock_virtio_transport.ko"] {
            assert!(can_wait(vsock, "virtio-serial") && !can_wait(vsock, "vsock"));
        }
        assert!(can_wait("virtio_net.ko", "vsock"));
    }
}
