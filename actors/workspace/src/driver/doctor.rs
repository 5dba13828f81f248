//! What this host offers to machines, each shortcoming with its remedy.
#![allow(unsafe_code)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::cgroup::Cgroups;
use super::{Options, probe_kvm, sandbox, tools, vm};

/// How long a trial of bubblewrap may take.
const TRIAL: Duration = Duration::from_secs(5);

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Such as `kvm`.
    pub what: &'static str,
    /// Whether it is as good as it can be. Machines may well run without.
    pub ok: bool,
    /// What was found.
    pub detail: String,
    /// What to do about it; `None` if nothing needs doing.
    pub remedy: Option<String>,
}

impl Finding {
    fn new(what: &'static str, result: Result<String, String>, remedy: &str) -> Self {
        let ok = result.is_ok();
        let detail = result.unwrap_or_else(|why| why);
        Self { what, ok, detail, remedy: (!ok).then(|| remedy.to_owned()) }
    }
}

/// Looks at everything. Blocks for up to ten seconds on a very ill host, else for some 100 ms.
/// `cgroup_tag` must not be the tag of a running daemon.
pub fn doctor(options: &Options, cgroup_tag: &str) -> Vec<Finding> {
    vec![
        kvm(),
        vsock(),
        program("qemu", &options.qemu_path, vm::QEMU_REMEDY),
        program("bubblewrap", &options.bwrap_path, sandbox::BWRAP_REMEDY),
        user_namespaces(options),
        cgroups(cgroup_tag),
        landlock(),
    ]
}

fn kvm() -> Finding {
    let verdict = probe_kvm();
    let result = if verdict.usable { Ok(verdict.reason) } else { Err(verdict.reason) };
    let remedy = "VMs run in software emulation, 15 to 20 times slower; \
        for speed use a host with hardware virtualization, or isolation = \"sandbox\"";
    Finding::new("kvm", result, remedy)
}

fn vsock() -> Finding {
    let result = if Path::new("/dev/vhost-vsock").exists() {
        Ok("/dev/vhost-vsock".to_owned())
    } else {
        Err("no /dev/vhost-vsock: links use virtio-serial".to_owned())
    };
    Finding::new("vsock", result, "modprobe vhost_vsock, where the kernel has it")
}

fn program(what: &'static str, path: &Path, remedy: &str) -> Finding {
    let result = tools::find(path, remedy).and_then(|found| tools::version(&found));
    Finding::new(what, result.map_err(|error| error.to_string()), remedy)
}

/// By trying, as the user that sandboxes run as.
fn user_namespaces(options: &Options) -> Finding {
    let remedy = "sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone \
        or kernel.apparmor_restrict_unprivileged_userns forbids them";
    let trial = || -> Result<String, String> {
        let bwrap = tools::find(&options.bwrap_path, sandbox::BWRAP_REMEDY)
            .map_err(|error| error.to_string())?;
        let mut command = Command::new(bwrap);
        command.args(["--unshare-all", "--ro-bind", "/", "/", "true"]).current_dir("/");
        let user = options.machine_user(0).map_err(|error| error.to_string())?;
        if user.switch {
            use std::os::unix::process::CommandExt;
            command.uid(user.uid).gid(user.gid);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = run_bounded(&mut command).map_err(|error| error.to_string())?;
        if status.success() {
            Ok("work for unprivileged users".into())
        } else {
            Err(status.to_string())
        }
    };
    Finding::new("user namespaces", trial(), remedy)
}

fn run_bounded(command: &mut Command) -> std::io::Result<std::process::ExitStatus> {
    let mut child = command.spawn()?;
    let end = Instant::now() + TRIAL;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Err(std::io::Error::from(std::io::ErrorKind::TimedOut));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn cgroups(tag: &str) -> Finding {
    let cgroups = Cgroups::detect(tag);
    let result = match (cgroups.missing(), cgroups.version()) {
        (None, Some(version)) => Ok(format!("memory, cpu and pids ({version:?})")),
        (Some((_, why)), _) => Err(why.to_owned()),
        (None, None) => Err("no memory controller".to_owned()),
    };
    cgroups.leave();
    let remedy = "run the daemon as root, or under systemd with Delegate=yes and \
        DelegateSubgroup=daemon";
    Finding::new("cgroups", result, remedy)
}

fn landlock() -> Finding {
    // SAFETY: a null attribute of size 0 with this flag only asks for the version.
    let abi = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, 1u32)
    };
    let result = if abi > 0 { Ok(format!("ABI {abi}")) } else { Err("not there".to_owned()) };
    Finding::new("landlock", result, "boot a kernel of 5.13 or later with lsm=landlock,...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shortcoming_has_a_remedy_and_nothing_stays() {
        let options = Options { qemu_path: "/no/such/qemu".into(), ..Options::default() };
        let tag = format!("doctor{}", std::process::id());
        let findings = doctor(&options, &tag);
        for finding in &findings {
            eprintln!("{finding:?}");
            assert_eq!(finding.ok, finding.remedy.is_none(), "{finding:?}");
        }
        let qemu = findings.iter().find(|finding| finding.what == "qemu").unwrap();
        assert!(!qemu.ok && qemu.detail.contains("/no/such/qemu"));
        assert!(Cgroups::detect(&tag).machines().is_empty());
        Cgroups::detect(&tag).leave();
    }
}
