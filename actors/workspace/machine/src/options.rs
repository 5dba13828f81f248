//! Options of the drivers.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

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
