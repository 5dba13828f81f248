//! Error type of the drivers, and its conversion to [`ToolError`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};

use crate::codes;
use crate::exit::ExitHow;
use crate::qmp;

/// Refusal or failure; each variant asks something else of the caller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program the driver needs is not on this host.
    #[error("{program} is missing: {detail}")]
    ToolMissing {
        /// Program as configured.
        program: String,
        /// Way to get it.
        detail: String,
    },
    /// The machine cannot be paused.
    #[error("the machine cannot be paused: {why}")]
    CannotPause {
        /// Reason, of a sandbox's cgroup.
        why: &'static str,
    },
    /// `accelerator = "kvm"` on a host whose KVM does not pass the speed probe.
    #[error("KVM was asked for and cannot be used: {reason}")]
    KvmUnusable {
        /// Reason from the probe.
        reason: String,
    },
    /// `cgroup_required = true` and a limit would not be enforced. Nothing was started.
    #[error("limits are required but {what} cannot be enforced: {why}")]
    LimitsUnavailable {
        /// Name of the limit.
        what: &'static str,
        /// Missing part of the host.
        why: String,
    },
    /// `landlock_required = true` on a kernel without all of it. Nothing was started.
    #[error("all of Landlock is required and this kernel lacks {missing}")]
    LandlockIncomplete {
        /// Missing features.
        missing: String,
    },
    /// The plan cannot be carried out by this driver.
    #[error("the plan cannot be carried out: {0}")]
    BadPlan(String),
    /// The daemon's user has no subordinate user for a sandbox that needs one.
    #[error("the sandbox has no user: {0}")]
    NoSubordinate(String),
    /// The host's ids for a sandbox with several users are not to be had.
    #[error("the sandbox's users have no ids: {0}")]
    NoIds(String),
    /// The unprivileged user of the machine may not enter a folder on the way to a path.
    #[error("user {uid} cannot reach {}: give {} the mode o+x", path.display(), folder.display())]
    Unreachable {
        /// Path that must be reached.
        path: PathBuf,
        /// First folder that denies access.
        folder: PathBuf,
        /// User of the machine.
        uid: u32,
    },
    /// The machine ended before it was up.
    #[error("the machine ended during its start ({how}): {stderr_tail}")]
    DiedAtStart {
        /// Exit of the process.
        how: ExitHow,
        /// End of its stderr, at most 4 KiB.
        stderr_tail: String,
    },
    /// The machine did not come up in time; it was killed.
    #[error("the machine did not answer within {} s of its start: {stderr_tail}", after.as_secs())]
    StartTimeout {
        /// Time that it had, from its start.
        after: Duration,
        /// End of its stderr, at most 4 KiB.
        stderr_tail: String,
    },
    /// The handle names no living machine.
    #[error(transparent)]
    Gone(#[from] ReattachError),
    /// SIGKILL was sent but the process stays (uninterruptible in the host's kernel).
    #[error("process {pid} is still there {} s after SIGKILL", after.as_secs())]
    Unkillable {
        /// Pid of the process.
        pid: i32,
        /// Time waited.
        after: Duration,
    },
    /// The machine is stopped at a write that does not fit on the host's disk.
    #[error("the machine is stopped: the host's disk has no room for what it writes")]
    HostDiskFull,
    /// Request on QEMU's control socket failed.
    #[error("QMP: {0}")]
    Qmp(#[from] qmp::Error),
    /// The machine was started without a network interface.
    #[error("{workspace} has no network interface")]
    NoInterface {
        /// Workspace of the machine.
        workspace: String,
    },
    /// Machines of this kind cannot be saved, paused or forked.
    #[error("this machine cannot be saved: {why}")]
    SnapshotUnsupported {
        /// Reason for the caller.
        why: String,
    },
    /// A memory image was made on a machine of another shape.
    #[error("the memory image does not fit this machine: {what} was {saved} and is {here}")]
    ShapeDiffers {
        /// Part of the shape.
        what: &'static str,
        /// Saved value.
        saved: String,
        /// Value that this daemon would use.
        here: String,
    },
    /// A memory image is not complete or not readable.
    #[error("{} is not a complete memory image: {why}", folder.display())]
    SnapshotDamaged {
        /// Folder of the snapshot.
        folder: PathBuf,
        /// Reason, as a clause.
        why: String,
    },
    /// Saving failed. The memory image was removed.
    #[error("saving failed{}: {cause}", if *resumed { "" } else { ", and the guest is stopped" })]
    SaveFailed {
        /// True if the guest is in its former state again.
        resumed: bool,
        /// True if the machine has the new top layer.
        disk_switched: bool,
        /// Error of the step that failed.
        #[source]
        cause: Box<Error>,
    },
    /// The host's file system, process table or cgroups failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// Operation, as a verb that the path follows: "open".
        action: &'static str,
        /// Path of the operation.
        path: PathBuf,
        /// Error of the system, or of the task that ran the operation.
        source: std::io::Error,
    },
}

impl Error {
    /// Wraps an I/O error with the operation and its path, for `map_err`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// Reports that a blocking task panicked or the runtime is shutting down.
    pub(super) fn lost_task(error: tokio::task::JoinError) -> Self {
        Self::Io {
            action: "run a blocking task for",
            path: PathBuf::from("driver"),
            source: std::io::Error::other(error),
        }
    }
}

/// Reason why a journalled machine cannot be reattached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReattachError {
    /// The host was rebooted since.
    #[error("the host was rebooted since the machine started")]
    HostRebooted,
    /// The process has ended.
    #[error("process {pid} has ended")]
    Ended {
        /// Former pid of the machine.
        pid: i32,
    },
    /// The pid belongs to another process by now.
    #[error("process {pid} is another process by now")]
    PidReused {
        /// Former pid of the machine.
        pid: i32,
    },
    /// The process and its control socket are the right ones, but it does not answer now: it, or
    /// the host, may be busy.
    #[error("the machine lives but does not answer: {reason}")]
    Silent {
        /// Request that was waited for.
        reason: String,
    },
    /// The process is the right one, but its control socket is not.
    #[error("the machine lives but cannot be controlled: {reason}")]
    Uncontrollable {
        /// Answer of QMP, or the lack of one.
        reason: String,
    },
}

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
            Error::CannotPause { .. } => (
                hivekeep_kernel::codes::SNAPSHOT_UNSUPPORTED,
                "make the workspace with isolation `vm`, or stop it",
            ),
            Error::SnapshotUnsupported { .. } => (
                hivekeep_kernel::codes::SNAPSHOT_UNSUPPORTED,
                "workspace_info shows what this machine can do",
            ),
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
