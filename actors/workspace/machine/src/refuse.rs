//! Conversion of driver errors to [`ToolError`].

use hivekeep_kernel::{Layer, ToolError};

use super::Error;
use crate::codes;

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let (code, step) = match &error {
            Error::ToolMissing { .. } => {
                (codes::MACHINE_TOOL_MISSING, "`hivekeep check` names the package")
            }
            Error::KvmUnusable { .. } => {
                (codes::KVM_UNUSABLE, "set workspace.driver.accelerator to \"auto\" or \"tcg\"")
            }
            Error::LimitsUnavailable { .. } => (
                codes::LIMITS_UNAVAILABLE,
                "set workspace.driver.cgroup_required to false, or fix the host's cgroups",
            ),
            Error::LandlockIncomplete { .. } => (
                codes::LANDLOCK_INCOMPLETE,
                "boot a kernel of 6.12 or later with lsm=landlock,..., or set \
                 workspace.sandbox.landlock_required to false",
            ),
            Error::BadPlan(_) => {
                (codes::MACHINE_PLAN_INVALID, "`hivekeep check` looks at the images")
            }
            Error::NoSubordinate(_) => (
                codes::SANDBOX_USER_MISSING,
                "give the daemon's user a larger range in /etc/subuid",
            ),
            Error::NoIds(_) => (
                codes::SANDBOX_USER_MISSING,
                "set workspace.driver.sandbox_first_id to what it was, or to ids that nobody has",
            ),
            Error::Unreachable { .. } => {
                (codes::MACHINE_PATH_UNREACHABLE, "change the folder's mode as the message says")
            }
            Error::DiedAtStart { .. } => {
                (codes::MACHINE_DIED_AT_START, "workspace_logs shows what it printed")
            }
            Error::StartTimeout { .. } => {
                (codes::MACHINE_START_TIMEOUT, "workspace_logs shows what it printed")
            }
            Error::Gone(_) => (codes::MACHINE_GONE, "workspace_info shows the state"),
            Error::Unkillable { .. } => {
                (codes::MACHINE_UNKILLABLE, "the host's kernel holds the process: look at the host")
            }
            Error::NoInterface { .. } => {
                (codes::NO_NETWORK_INTERFACE, "stop the workspace and start it again")
            }
            Error::SnapshotUnsupported { .. } => {
                (codes::SNAPSHOT_UNSUPPORTED, "workspace_info shows what this machine can do")
            }
            Error::ShapeDiffers { .. } => (
                codes::SNAPSHOT_DOES_NOT_FIT,
                "start it with the size and on the QEMU it was saved with, or without its memory",
            ),
            Error::SnapshotDamaged { .. } => {
                (codes::SNAPSHOT_DAMAGED, "restore it without its memory, or delete it")
            }
            Error::SaveFailed { .. } => {
                (codes::SNAPSHOT_FAILED, "workspace_info shows the state; try again")
            }
            Error::HostDiskFull => return host_disk_full(),
            Error::Qmp(_) => {
                (codes::MACHINE_CONTROL_FAILED, "workspace_logs shows what it printed")
            }
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                (codes::HOST_DISK_FULL, "free space on the host")
            }
            Error::Io { .. } => (codes::MACHINE_HOST_IO, "`hivekeep check` looks at the folders"),
        };
        Self::new(Layer::Machine, code, text).next(step)
    }
}

/// Refusal of requests to a machine that is stopped because it cannot write.
pub fn host_disk_full() -> ToolError {
    let message = "the machine stands still: the host's disk has no room for what it writes";
    ToolError::new(Layer::Machine, codes::HOST_DISK_FULL, message)
        .next("free space on the host: the machine goes on by itself and has lost nothing")
        .detail("state", "host_disk_full")
        .retry_after(std::time::Duration::from_secs(5))
}
