//! Failures of this crate's parts as callers see them.

use hivekeep_kernel::{Layer, ToolError};

use crate::{driver, image};

impl From<driver::Error> for ToolError {
    fn from(error: driver::Error) -> Self {
        use driver::Error;
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
            Error::HostDiskFull => return crate::phase::host_disk_full(),
            Error::Qmp(_) => ("machine_control_failed", "workspace_logs shows what it printed"),
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                ("host_disk_full", "free space on the host")
            }
            Error::Io { .. } => ("machine_host_io", "`hivekeep check` looks at the folders"),
        };
        Self::new(Layer::Machine, code, text).next(step)
    }
}

impl From<image::Error> for ToolError {
    fn from(error: image::Error) -> Self {
        use image::Error;
        let text = error.to_string();
        let code = match &error {
            Error::Missing { .. } => "image_missing",
            Error::Corrupt { .. } => "image_corrupt",
            Error::Unknown { .. } => "image_unknown",
            Error::DiskSize { .. } => "disk_size",
            Error::OverlayExists { .. } => "disk_exists",
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                "host_disk_full"
            }
            _ => "image_failed",
        };
        let known = Self::new(Layer::Machine, code, text);
        match &error {
            Error::Missing { remedy, .. } | Error::Corrupt { remedy, .. } => {
                known.next(remedy.clone())
            }
            Error::DiskSize { min_gb, max_gb, .. } => {
                known.detail("min_gb", *min_gb).detail("max_gb", *max_gb)
            }
            _ => known.next("`hivekeep image list` shows the images"),
        }
    }
}
