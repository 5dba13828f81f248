//! A driver's failures as callers see them.

use hivekeep_kernel::{Layer, ToolError};

use super::Error;

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let (code, step) = match &error {
            Error::ToolMissing { .. } => {
                ("machine_tool_missing", "`hivekeep check` names the package")
            }
            Error::KvmUnusable { .. } => {
                ("kvm_unusable", "set workspace.driver.accelerator to \"auto\" or \"tcg\"")
            }
            Error::LimitsUnavailable { .. } => (
                "limits_unavailable",
                "set workspace.driver.cgroup_required to false, or fix the host's cgroups",
            ),
            Error::LandlockIncomplete { .. } => (
                "landlock_incomplete",
                "boot a kernel of 6.12 or later with lsm=landlock,..., or set \
                 workspace.sandbox.landlock_required to false",
            ),
            Error::BadPlan(_) => ("machine_plan_invalid", "`hivekeep check` looks at the images"),
            Error::NoSubordinate(_) => {
                ("sandbox_user_missing", "give the daemon's user a larger range in /etc/subuid")
            }
            Error::Unreachable { .. } => {
                ("machine_path_unreachable", "change the folder's mode as the message says")
            }
            Error::DiedAtStart { .. } => {
                ("machine_died_at_start", "workspace_logs shows what it printed")
            }
            Error::StartTimeout { .. } => {
                ("machine_start_timeout", "workspace_logs shows what it printed")
            }
            Error::Gone(_) => ("machine_gone", "workspace_info shows the state"),
            Error::Unkillable { .. } => {
                ("machine_unkillable", "the host's kernel holds the process: look at the host")
            }
            Error::NoInterface { .. } => {
                ("no_network_interface", "stop the workspace and start it again")
            }
            Error::SnapshotUnsupported { .. } => {
                ("snapshot_unsupported", "workspace_info shows what this machine can do")
            }
            Error::ShapeDiffers { .. } => (
                "snapshot_does_not_fit",
                "start it with the size and on the QEMU it was saved with, or without its memory",
            ),
            Error::SnapshotDamaged { .. } => {
                ("snapshot_damaged", "restore it without its memory, or delete it")
            }
            Error::SaveFailed { .. } => {
                ("snapshot_failed", "workspace_info shows the state; try again")
            }
            Error::HostDiskFull => return host_disk_full(),
            Error::Qmp(_) => ("machine_control_failed", "workspace_logs shows what it printed"),
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                ("host_disk_full", "free space on the host")
            }
            Error::Io { .. } => ("machine_host_io", "`hivekeep check` looks at the folders"),
        };
        Self::new(Layer::Machine, code, text).next(step)
    }
}

/// What is asked of a machine that stands still since it cannot write.
pub fn host_disk_full() -> ToolError {
    let message = "the machine stands still: the host's disk has no room for what it writes";
    ToolError::new(Layer::Machine, "host_disk_full", message)
        .next("free space on the host: the machine goes on by itself and has lost nothing")
        .detail("state", "host_disk_full")
        .retry_after(std::time::Duration::from_secs(5))
}
