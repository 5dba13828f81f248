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

mod modules;
mod mounts;
pub mod supervisor;

use std::ffi::CString;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::mount::MountFlags;
use rustix::system::{RebootCommand, reboot};

use crate::args::RUN_DIR;
use crate::identity;
use crate::roles::RoleFailure;

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

fn boot() -> Result<(Asked, modules::Later), Error> {
    mounts::early()?;
    let cmdline = std::fs::read_to_string("/proc/cmdline").map_err(failed("command line"))?;
    let asked = Asked::of(&cmdline);
    let later = modules::load_needed(Path::new("/lib/hivekeep"), &asked.carrier, asked.has_volumes);
    mounts::enter_root(Path::new(&asked.root))?;
    mounts::late();
    if let Some(id) = &asked.machine_id
        && let Err(error) = identity::machine_id_at_boot(id, asked.is_fork)
    {
        crate::say!("init: machine id: {error}");
    }
    if let Err(error) = crate::sys::ioctl::loopback_up() {
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
}
