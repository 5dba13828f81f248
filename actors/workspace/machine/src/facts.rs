//! Facts that a driver reports about itself and the limits it applied, and Landlock's support by this host's
//! kernel.

use serde::{Deserialize, Serialize};

use crate::plan::CarrierKind;
use crate::sandbox::Subordinates;

/// How a workspace is kept apart from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// A virtual machine with a kernel of its own.
    Vm,
    /// Namespaces on the host's kernel: weaker than a VM.
    Sandbox,
}

impl Isolation {
    /// Word in configuration and results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Sandbox => "sandbox",
        }
    }
}

/// Accelerator: executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AcceleratorKind {
    /// Hardware virtualization that passed the speed probe.
    Kvm,
    /// QEMU's software emulation.
    Tcg,
    /// No accelerator: the guest's processes run on the host's kernel.
    Namespaces,
}

/// Version of the cgroup hierarchy that enforces a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    /// Version 1: one hierarchy per controller.
    V1,
    /// Version 2: the unified hierarchy.
    V2,
}

/// Facts that a driver found when it was made. Shown by `check` and `workspace_info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DriverFacts {
    /// Accelerator that executes the guest.
    pub accelerator: AcceleratorKind,
    /// Reason for this accelerator.
    pub accelerator_why: String,
    /// Program and its version, such as "QEMU emulator version 7.2.22".
    pub program: String,
    /// Default carrier of plans.
    pub carrier: CarrierKind,
    /// Version of the hierarchy that limits memory, if any.
    pub cgroup: Option<CgroupVersion>,
    /// Limitations of this driver's machines on this host, each with its reason.
    pub cannot: Vec<String>,
    /// Confinement; only of sandboxes.
    pub confinement: Option<Confinement>,
}

/// Which user of the host a machine's processes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "users", rename_all = "snake_case")]
pub enum HostUser {
    /// A user of the machine's own.
    Own,
    /// The daemon's user, which all its machines share: between them stand namespaces alone, and
    /// what the kernel counts by user they take from one another.
    Shared {
        /// Reason why the machine has no user of its own.
        why: String,
    },
}

/// How sandboxes are kept from the host and from each other, beyond namespaces, system calls and
/// capabilities, which are alike everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Confinement {
    /// Landlock features in force.
    pub landlock: Landlock,
    /// User of the host that a sandbox's processes are.
    #[serde(flatten)]
    pub user: HostUser,
}

impl Confinement {
    /// Confinement of this daemon's sandboxes on this host. `subordinates` are the users that it
    /// may give them, or the reason why it has none.
    pub(super) fn with(subordinates: &Result<Subordinates, String>) -> Self {
        let own = rustix::process::geteuid();
        let user = match subordinates {
            Err(why) if !own.is_root() => {
                let own = own.as_raw();
                let why = format!("the daemon is user {own} and may not become others: {why}");
                HostUser::Shared { why }
            }
            _ => HostUser::Own,
        };
        Self { landlock: Landlock::here(), user }
    }
}

/// Support of a capability, or the reason why it is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "support", rename_all = "snake_case")]
pub enum CapabilitySupport {
    /// Supported on this host.
    Yes,
    /// Refused by name.
    No {
        /// Reason for the caller.
        why: String,
    },
}

impl CapabilitySupport {
    /// Makes a refusal.
    pub fn no(why: impl Into<String>) -> Self {
        Self::No { why: why.into() }
    }

    /// True for [`CapabilitySupport::Yes`].
    pub fn is_yes(&self) -> bool {
        matches!(self, Self::Yes)
    }
}

/// Capabilities of machines of a kind. The owner checks here before it tries, and passes the
/// refusal on to its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Support for saving and resuming RAM and device state.
    pub memory_snapshots: CapabilitySupport,
    /// Support for a kernel of the guest's own.
    pub own_kernel: CapabilitySupport,
    /// Support for `disk_gb` as a hard limit.
    pub disk_limit: CapabilitySupport,
    /// Support for users besides root.
    pub several_users: CapabilitySupport,
    /// Support for volumes of the host that are mounted into the machine.
    pub volumes: CapabilitySupport,
}

/// Whether one limit holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "enforced", rename_all = "snake_case")]
pub enum Enforcement {
    /// The limit holds.
    Yes {
        /// Mechanism that enforces the limit, such as "cgroup v1 memory.limit_in_bytes = 536870912".
        by: String,
    },
    /// The limit does not hold.
    No {
        /// Cause, such as a cgroup controller that the host does not have.
        why: String,
    },
}

/// Each limit of a started machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AppliedLimits {
    /// RAM of the guest and of what runs it.
    pub memory: Enforcement,
    /// Processor time.
    pub cpu: Enforcement,
    /// Number of host processes and threads.
    pub pids: Enforcement,
    /// Size of the disk.
    pub disk: Enforcement,
}

/// Features that sandboxes ask for (`hivekeep-guest`, `sandbox.rs`), with the first ABI
/// that has each.
const ASKED: [(u32, &str); 3] = [
    (1, "the denial of every mount operation"),
    (5, "the denial of device ioctls"),
    (6, "the denial of signals and abstract sockets to the outside"),
];

/// Share of the Landlock features that sandboxes ask for that is enforced.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LandlockExtent {
    /// All features.
    Full,
    /// Some features: the kernel is older.
    Partial,
    /// No feature: the kernel has no Landlock, or was booted without.
    None,
}

/// Landlock, as sandboxes have it on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Landlock {
    /// Share of the features that sandboxes ask for that is enforced.
    pub enforced: LandlockExtent,
    /// Version of the kernel's Landlock ABI; 0 without Landlock.
    pub abi: u32,
    /// Features that sandboxes ask for and this kernel does not have.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub missing: Vec<String>,
}

impl Landlock {
    /// Support of the running kernel.
    #[allow(unsafe_code)]
    pub fn here() -> Self {
        // SAFETY: a null attribute of size 0 with this flag only asks for the version.
        let abi = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, 1u32)
        };
        Self::of(u32::try_from(abi).unwrap_or_default())
    }

    pub(super) fn of(abi: u32) -> Self {
        let lacking = ASKED.iter().filter(|(since, _)| abi < *since);
        let missing: Vec<_> = lacking.map(|(_, what)| (*what).to_owned()).collect();
        let enforced = match (abi, missing.is_empty()) {
            (_, true) => LandlockExtent::Full,
            (0, _) => LandlockExtent::None,
            _ => LandlockExtent::Partial,
        };
        Self { enforced, abi, missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_follows_from_the_abi() {
        let of = |abi| (Landlock::of(abi).enforced, Landlock::of(abi).missing.len());
        assert_eq!(of(0), (LandlockExtent::None, 3));
        assert_eq!(of(4), (LandlockExtent::Partial, 2));
        assert_eq!(of(5), (LandlockExtent::Partial, 1));
        assert_eq!(of(6), (LandlockExtent::Full, 0));
        assert_eq!(of(99), (LandlockExtent::Full, 0));
    }
}
