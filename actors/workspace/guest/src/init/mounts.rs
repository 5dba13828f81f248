//! The machine's file systems.

use std::ffi::CStr;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount, mount_move};

use super::{Error, failed};

/// How long the disk may take to appear.
const DISK_WAIT: Duration = Duration::from_secs(30);
const NEW_ROOT: &str = "/newroot";

fn try_mount(kind: &str, at: &str, flags: MountFlags, data: &CStr) -> io::Result<()> {
    std::fs::create_dir_all(at)?;
    Ok(mount(kind, at, kind, flags, data)?)
}

/// Mounts what the boot itself needs, and puts stdio on the console.
pub(super) fn early() -> Result<(), Error> {
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
pub(super) fn enter_root(disk: &Path) -> Result<(), Error> {
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
pub(super) fn late() {
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
