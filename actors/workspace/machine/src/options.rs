//! Options of the drivers, and finding the programs that machines are made of.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Error;

/// Which accelerator a VM gets.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// KVM where the speed probe says it is real, software emulation otherwise.
    #[default]
    Auto,
    /// KVM or a refusal.
    Kvm,
    /// Software emulation.
    Tcg,
}

/// Which carrier a VM's link uses.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CarrierChoice {
    /// vsock where `/dev/vhost-vsock` exists, virtio-serial otherwise.
    #[default]
    Auto,
    /// The kernel's vsock, or a refusal.
    Vsock,
    /// A virtio-serial port.
    VirtioSerial,
    /// vsock served by the external `vhost-device-vsock`.
    VhostUserVsock,
}

/// Section `[workspace.sandbox]`: walls of sandboxes that not every host has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxOptions {
    /// Refuse to start a sandbox where the kernel's Landlock lacks anything that sandboxes ask of
    /// it. Otherwise workspace_info says what is missing.
    pub landlock_required: bool,
}

/// Everything about machines that a person can configure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Which accelerator VMs get.
    pub accelerator: Accelerator,
    /// Which carrier VMs' links use.
    pub carrier: CarrierChoice,
    /// QEMU; a bare name is looked up in `PATH`.
    pub qemu_path: PathBuf,
    /// bubblewrap.
    pub bwrap_path: PathBuf,
    /// Only for `carrier = "vhost-user-vsock"`.
    pub vhost_device_vsock_path: PathBuf,
    /// virtiofsd, which serves volumes to VMs. Debian 12 has it in qemu-system-common, Debian 13 in
    /// virtiofsd, both under this path.
    pub virtiofsd_path: PathBuf,
    /// The static guest daemon that sandboxes run. Set from the workspaces' options.
    #[serde(skip)]
    pub guest_path: PathBuf,
    /// Set from the workspaces' options.
    #[serde(skip)]
    pub sandbox: SandboxOptions,
    /// Refuse to start a machine whose memory, CPU and process limits cannot be enforced.
    pub cgroup_required: bool,
    /// First of the users that machines run as when the daemon is root: machine number `n` runs as
    /// `machine_first_uid + n`. 64000 to 64999 is what Debian keeps for such use.
    pub machine_first_uid: u32,
    /// How many such users there are. A daemon that is not root gives its sandboxes as many of the
    /// range in `/etc/subuid`, where it has one.
    pub machine_uid_count: u32,
    /// First of the ids of the host that sandboxes have for their users when the daemon is root:
    /// 65536 that the files of volumes have, then 65536 for each machine number. The default is
    /// what neither systemd, shadow nor sssd gives to anybody. 0: sandboxes have root alone. What a
    /// sandbox and volumes hold is theirs by these numbers, so change it while there are none.
    pub sandbox_first_id: u32,
    /// Memory that QEMU itself may use beside the guest's RAM.
    pub vm_memory_overhead_mb: u64,
    /// Processes and threads in one sandbox, by its cgroup and by RLIMIT_NPROC.
    pub sandbox_max_processes: u32,
    /// How long a machine may take until it can be controlled (not: until the guest is up).
    pub launch_timeout_secs: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            accelerator: Accelerator::Auto,
            carrier: CarrierChoice::Auto,
            qemu_path: "qemu-system-x86_64".into(),
            bwrap_path: "bwrap".into(),
            vhost_device_vsock_path: "vhost-device-vsock".into(),
            virtiofsd_path: "/usr/lib/qemu/virtiofsd".into(),
            guest_path: "/usr/lib/hivekeep/hivekeep-guest".into(),
            sandbox: SandboxOptions::default(),
            cgroup_required: false,
            machine_first_uid: 64100,
            machine_uid_count: 900,
            sandbox_first_id: 0x7800_0000,
            // Twice the sum of 64 MiB of translated code and the usage of an idle QEMU 7.2.
            vm_memory_overhead_mb: 256,
            sandbox_max_processes: 2048,
            launch_timeout_secs: 20,
        }
    }
}

impl Options {
    pub(super) fn launch_timeout(&self) -> Duration {
        Duration::from_secs(self.launch_timeout_secs)
    }

    /// User that machine number `slot` runs as: one of the configured range when the daemon is
    /// root, else the daemon's own.
    pub(super) fn machine_user(&self, slot: u32) -> Result<MachineUser, super::Error> {
        let own = rustix::process::geteuid();
        if !own.is_root() {
            let gid = rustix::process::getegid().as_raw();
            return Ok(MachineUser { uid: own.as_raw(), gid, switch: false });
        }
        if slot >= self.machine_uid_count {
            let count = self.machine_uid_count;
            return Err(super::Error::BadPlan(format!(
                "slot {slot} is beyond machine_uid_count = {count}"
            )));
        }
        let uid = self.machine_first_uid + slot;
        if uid == 0 {
            return Err(super::Error::BadPlan("a machine never runs as root".into()));
        }
        Ok(MachineUser { uid, gid: uid, switch: true })
    }
}

/// User that a machine runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MachineUser {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// True if that is not the daemon's own user.
    pub(super) switch: bool,
}

impl MachineUser {
    /// User and group.
    pub(super) fn ids(self) -> (u32, u32) {
        (self.uid, self.gid)
    }
}

/// Limit of the bytes kept of a program's output.
const KEPT_BYTES: u64 = 64 * 1024;

/// Resolves a configured program to an absolute path; a bare name is looked up in `PATH`.
pub(super) fn find_program(program: &Path, remedy: &str) -> Result<PathBuf, Error> {
    let is_program = |path: &Path| {
        rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
    };
    let found = if program.components().count() > 1 {
        is_program(program).then(|| program.to_owned())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| is_program(path))
    };
    found.ok_or_else(|| Error::ToolMissing {
        program: program.display().to_string(),
        detail: remedy.to_owned(),
    })
}

/// Returns the first line of `program --version`.
pub(super) fn program_version(program: &Path) -> Result<String, Error> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io("run", program))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Runs a program; returns the first 64 KiB of each output stream and the exit status if it ends in
/// time; otherwise kills it. Blocks.
///
/// # Errors
/// Fails if the program cannot be started, or with `TimedOut`.
pub(super) fn output_within(command: &mut Command, limit: Duration) -> std::io::Result<Output> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (read_apart(child.stdout.take()), read_apart(child.stderr.take()));
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            let read = |reader: JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
            return Ok(Output { status, stdout: read(stdout), stderr: read(stderr) });
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a stream to its end, so that its writer never waits; keeps its beginning.
fn read_apart(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        if let Some(mut stream) = stream {
            // A stream that breaks has ended.
            let _ = stream.by_ref().take(KEPT_BYTES).read_to_end(&mut kept);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        kept
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_output_holds_no_program_up_and_time_does() {
        let mut much = Command::new("sh");
        much.args(["-c", "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; exit 3"]);
        let output = output_within(&mut much, Duration::from_secs(60)).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout.len(), output.stderr.len()), (65_536, 65_536));
        let late = output_within(Command::new("sleep").arg("600"), Duration::from_millis(50));
        assert_eq!(late.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    }
}
