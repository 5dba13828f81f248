//! Host check: capabilities for machines, each shortcoming with its remedy.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;

use crate::cgroup::Cgroups;
use crate::cgroup::programs::ProgramGroups;
use crate::options;
use crate::probe_kvm;
use crate::sandbox::{self, Subordinates};
use crate::vm;
use crate::{Confinement, HostUser, Landlock, Options};

/// Time limit of a trial of bubblewrap.
const TRIAL: Duration = Duration::from_secs(5);

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostCheck {
    /// Subject, such as `kvm`.
    pub what: &'static str,
    /// True if it is as good as it can be. Machines may well run without.
    pub ok: bool,
    /// Description of the result.
    pub detail: String,
    /// Remedy; `None` if nothing needs doing.
    pub remedy: Option<String>,
    /// Name of the Debian package that provides what is missing.
    pub package: Option<&'static str>,
}

impl HostCheck {
    fn new(what: &'static str, result: Result<String, String>, remedy: &str) -> Self {
        let ok = result.is_ok();
        let detail = result.unwrap_or_else(|why| why);
        Self { what, ok, detail, remedy: (!ok).then(|| remedy.to_owned()), package: None }
    }
}

/// Runs all checks. Blocks for up to ten seconds on a very ill host, else for some 100 ms.
/// `cgroup_tag` must not be the tag of a running daemon.
pub fn doctor(options: &Options, cgroup_tag: &str) -> Vec<HostCheck> {
    vec![
        kvm(),
        vsock(),
        program("qemu", &options.qemu_path, vm::QEMU_REMEDY, "qemu-system-x86"),
        program("bubblewrap", &options.bwrap_path, sandbox::BWRAP_REMEDY, "bubblewrap"),
        virtiofsd(options),
        user_namespaces(options),
        cgroups(cgroup_tag),
        programs_together(cgroup_tag),
        landlock(),
        users(options),
        users_within(options),
    ]
}

fn kvm() -> HostCheck {
    let verdict = probe_kvm();
    let result = if verdict.usable { Ok(verdict.reason) } else { Err(verdict.reason) };
    let remedy = "VMs run in software emulation, 15 to 20 times slower; \
        for speed use a host with hardware virtualization, or isolation = \"sandbox\"";
    HostCheck::new("kvm", result, remedy)
}

fn vsock() -> HostCheck {
    let result = if Path::new("/dev/vhost-vsock").exists() {
        Ok("/dev/vhost-vsock".to_owned())
    } else {
        Err("no /dev/vhost-vsock: links use virtio-serial".to_owned())
    };
    HostCheck::new("vsock", result, "modprobe vhost_vsock, where the kernel has it")
}

fn program(what: &'static str, path: &Path, remedy: &str, package: &'static str) -> HostCheck {
    let result =
        options::find_program(path, remedy).and_then(|found| options::program_version(&found));
    let finding = HostCheck::new(what, result.map_err(|error| error.to_string()), remedy);
    HostCheck { package: (!finding.ok).then_some(package), ..finding }
}

/// Looks for the server of VMs' volumes.
fn virtiofsd(options: &Options) -> HostCheck {
    let found = options::find_program(&options.virtiofsd_path, vm::VIRTIOFSD_REMEDY);
    let result = found.map(|found| found.display().to_string());
    let result = result.map_err(|missing| format!("VMs mount no volumes: {missing}"));
    let finding = HostCheck::new("virtiofsd", result, vm::VIRTIOFSD_REMEDY);
    HostCheck { package: (!finding.ok).then_some("virtiofsd"), ..finding }
}

/// Checks user namespaces by a trial, as the user that sandboxes run as.
fn user_namespaces(options: &Options) -> HostCheck {
    let trial = || -> Result<String, String> {
        let bwrap = options::find_program(&options.bwrap_path, sandbox::BWRAP_REMEDY)
            .map_err(|error| error.to_string())?;
        let mut command = Command::new(bwrap);
        command.args(["--unshare-all", "--ro-bind", "/", "/", "true"]).current_dir("/");
        let user = options.machine_user(0).map_err(|error| error.to_string())?;
        if user.switch {
            use std::os::unix::process::CommandExt;
            command.uid(user.uid).gid(user.gid);
        }
        command.stdin(Stdio::null());
        let tried =
            options::output_within(&mut command, TRIAL).map_err(|error| error.to_string())?;
        match tried.status.success() {
            true => Ok("work for unprivileged users".into()),
            false => Err(tried.status.to_string()),
        }
    };
    HostCheck::new("user namespaces", trial(), forbidden_by(Path::new("/proc/sys")))
}

/// Remedy for namespaces that do not work, by the settings of the kernel.
fn forbidden_by(settings: &Path) -> &'static str {
    let is = |setting: &str, value: &str| {
        let set = std::fs::read_to_string(settings.join(setting));
        set.is_ok_and(|set| set.trim() == value)
    };
    if is("user/max_user_namespaces", "0") {
        "sysctl user.max_user_namespaces=0 forbids them: set it to 10000 or so"
    } else if is("kernel/unprivileged_userns_clone", "0") {
        "sysctl kernel.unprivileged_userns_clone=0 forbids them: set it to 1"
    } else if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        // Default of Ubuntu since 24.04.
        "AppArmor forbids them (kernel.apparmor_restrict_unprivileged_userns=1): give bwrap a \
            profile with `userns,`, or set this sysctl to 0 for all programs"
    } else {
        "no sysctl forbids them: a container or a security module around this host may"
    }
}

fn cgroups(tag: &str) -> HostCheck {
    let cgroups = Cgroups::detect(tag);
    let result = match (cgroups.missing(), cgroups.version()) {
        (None, Some(version)) => Ok(format!("memory, cpu and pids ({version:?})")),
        (Some((_, why)), _) => Err(why.to_owned()),
        (None, None) => Err("no memory controller".to_owned()),
    };
    cgroups.leave();
    let remedy = "run the daemon as root, or under systemd with Delegate=yes and \
        DelegateSubgroup=daemon";
    HostCheck::new("cgroups", result, remedy)
}

/// Checks the bounds of what a program of the host takes with all its processes.
fn programs_together(tag: &str) -> HostCheck {
    let cgroups = Cgroups::detect(tag);
    let bounded = ProgramGroups::of(&cgroups);
    cgroups.leave();
    let result =
        bounded.map(|_| "bounded by cgroup v2: `memory_mb` of a source, and processes".into());
    let remedy = "boot with cgroup v2 alone and see `cgroups`; until then `memory_mb` of a source holds \
        for each of its processes";
    HostCheck::new("programs together", result, remedy)
}

fn landlock() -> HostCheck {
    let Landlock { abi, missing, .. } = Landlock::here();
    let result = match missing.is_empty() {
        true => Ok(format!("ABI {abi}")),
        false => Err(format!("ABI {abi}; sandboxes go without {}", missing.join(", "))),
    };
    let remedy = "boot a kernel of 6.12 or later with lsm=landlock,...; \
        workspace.sandbox.landlock_required = true refuses sandboxes until then";
    HostCheck::new("landlock", result, remedy)
}

/// Checks the users that machines run as.
fn users(options: &Options) -> HostCheck {
    let subordinates = Subordinates::find(options.machine_uid_count);
    let result = match (Confinement::with(&subordinates).user, subordinates) {
        (HostUser::Own, Err(_root)) => {
            let (first, count) = (options.machine_first_uid, options.machine_uid_count);
            Ok(format!("each machine has its own, from {first} on, {count} of them"))
        }
        (HostUser::Own, Ok(subordinates)) => {
            let (count, first) = subordinates.range();
            Ok(format!("each sandbox has its own, from {first} on, {count} of them (/etc/subuid)"))
        }
        (HostUser::Shared { why }, _) => Err(format!("all machines share one: {why}")),
    };
    HostCheck::new("users of machines", result, sandbox::USERS_REMEDY)
}

/// Checks the ids that sandboxes have for users besides root.
fn users_within(options: &Options) -> HostCheck {
    let found = sandbox::SandboxIds::find(options).map(|ids| {
        let (count, first) = ids.ranges();
        format!("each sandbox has 65536 ids, {count} of them, from {first} on")
    });
    let remedy = "commands of sandboxes run as root until the daemon is root and \
        workspace.driver.sandbox_first_id begins ids that nobody has";
    HostCheck::new("users in sandboxes", found, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shortcoming_has_a_remedy_and_nothing_stays() {
        let options = Options {
            qemu_path: "/no/such/qemu".into(),
            virtiofsd_path: "/no/such/virtiofsd".into(),
            ..Options::default()
        };
        let tag = format!("doctor{}", std::process::id());
        let findings = doctor(&options, &tag);
        for finding in &findings {
            eprintln!("{finding:?}");
            assert_eq!(finding.ok, finding.remedy.is_none(), "{finding:?}");
        }
        let qemu = findings.iter().find(|finding| finding.what == "qemu").unwrap();
        assert!(!qemu.ok && qemu.detail.contains("/no/such/qemu"));
        assert_eq!(qemu.package, Some("qemu-system-x86"));
        let server = findings.iter().find(|finding| finding.what == "virtiofsd").unwrap();
        assert_eq!((server.ok, server.package), (false, Some("virtiofsd")));
        assert!(Cgroups::detect(&tag).machines().is_empty());
        Cgroups::detect(&tag).leave();
    }

    #[test]
    fn the_setting_that_forbids_namespaces_is_named() {
        let settings = tempfile::tempdir().unwrap();
        for folder in ["user", "kernel"] {
            std::fs::create_dir(settings.path().join(folder)).unwrap();
        }
        let set = |name: &str, value: &str| {
            std::fs::write(settings.path().join(name), format!("{value}\n")).unwrap();
        };
        let named = |name: &str| forbidden_by(settings.path()).contains(name);
        assert!(named("no sysctl"), "what is not there forbids nothing");
        // Settings of Ubuntu 24.04.
        set("user/max_user_namespaces", "63948");
        set("kernel/unprivileged_userns_clone", "1");
        set("kernel/apparmor_restrict_unprivileged_userns", "1");
        assert!(named("apparmor_restrict_unprivileged_userns") && named("`userns,`"));
        set("kernel/unprivileged_userns_clone", "0");
        assert!(named("kernel.unprivileged_userns_clone"));
        set("user/max_user_namespaces", "0");
        assert!(named("user.max_user_namespaces"));
    }
}
