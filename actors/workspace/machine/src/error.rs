//! What a driver refuses or fails with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::exit::ExitHow;
use super::qmp;

/// Each variant asks something else of the caller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program the driver needs is not on this host.
    #[error("{program} is not there: {detail}")]
    ToolMissing {
        /// As configured.
        program: String,
        /// How to get it.
        detail: String,
    },
    /// `accelerator = "kvm"` on a host whose KVM does not pass the speed probe.
    #[error("KVM was asked for and cannot be used: {reason}")]
    KvmUnusable {
        /// From the probe.
        reason: String,
    },
    /// `cgroup_required = true` and a limit would not hold. Nothing was started.
    #[error("limits are required but {what} cannot be enforced: {why}")]
    LimitsUnavailable {
        /// The limit.
        what: &'static str,
        /// The missing part of the host.
        why: String,
    },
    /// `landlock_required = true` on a kernel without all of it. Nothing was started.
    #[error("all of Landlock is required and this kernel lacks {missing}")]
    LandlockIncomplete {
        /// What it lacks.
        missing: String,
    },
    /// The plan cannot be carried out by this driver.
    #[error("the plan cannot be carried out: {0}")]
    BadPlan(String),
    /// The daemon's user has no subordinate user for a sandbox that needs one.
    #[error("the sandbox has no user: {0}")]
    NoSubordinate(String),
    /// The unprivileged user of the machine may not pass a folder on the way to a path.
    #[error("user {uid} cannot reach {}: give {} the mode o+x", path.display(), folder.display())]
    Unreachable {
        /// What must be reached.
        path: PathBuf,
        /// The first folder that stops it.
        folder: PathBuf,
        /// The machine's user.
        uid: u32,
    },
    /// The machine ended before it was up.
    #[error("the machine ended during its start ({how}): {stderr_tail}")]
    DiedAtStart {
        /// How.
        how: ExitHow,
        /// The end of its stderr, at most 4 KiB.
        stderr_tail: String,
    },
    /// The machine did not come up in time; it was killed.
    #[error("the machine did not answer within {} s of its start: {stderr_tail}", after.as_secs())]
    StartTimeout {
        /// The deadline.
        after: Duration,
        /// The end of its stderr, at most 4 KiB.
        stderr_tail: String,
    },
    /// The handle names no living machine.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// SIGKILL was sent but the process stays (uninterruptible in the host's kernel).
    #[error("process {pid} is still there {} s after SIGKILL", after.as_secs())]
    Unkillable {
        /// The process.
        pid: i32,
        /// How long was waited.
        after: Duration,
    },
    /// It stands still at a write that the host's disk has no room for.
    #[error("the machine stands still: the host's disk has no room for what it writes")]
    HostDiskFull,
    /// QEMU's control socket.
    #[error("QMP: {0}")]
    Qmp(#[from] qmp::Error),
    /// The machine was started without a network interface.
    #[error("{workspace} has no network interface")]
    NoInterface {
        /// The machine's workspace.
        workspace: String,
    },
    /// Machines of this kind cannot be saved, paused or forked.
    #[error("this machine cannot be saved: {why}")]
    SnapshotUnsupported {
        /// For the caller who asked.
        why: String,
    },
    /// A memory image was made on a machine of another shape.
    #[error("the memory image does not fit this machine: {what} was {saved} and is {here}")]
    ShapeDiffers {
        /// The part of the shape.
        what: &'static str,
        /// As it was saved.
        saved: String,
        /// As this daemon would make it.
        here: String,
    },
    /// A memory image is not complete or not readable.
    #[error("{} is no complete memory image: {why}", folder.display())]
    SnapshotDamaged {
        /// The snapshot's folder.
        folder: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Saving failed. The memory image was removed.
    #[error("saving failed{}: {cause}", if *resumed { "" } else { ", and the guest stands still" })]
    SaveFailed {
        /// The guest is in the state it was in before.
        resumed: bool,
        /// The machine has the new top layer.
        disk_switched: bool,
        /// What went wrong.
        #[source]
        cause: Box<Error>,
    },
    /// The host's file system, process table or cgroups.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl Error {
    /// For `map_err`: an I/O error with what was tried and on what.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// A blocking task panicked or the runtime is going down.
    pub(super) fn lost_task(error: tokio::task::JoinError) -> Self {
        Self::Io {
            action: "run a blocking task for",
            path: PathBuf::from("driver"),
            source: std::io::Error::other(error),
        }
    }
}

/// Why a journalled machine cannot be taken up again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    /// The host was booted since.
    #[error("the host was rebooted since the machine started")]
    HostRebooted,
    /// No such process.
    #[error("process {pid} has ended")]
    Ended {
        /// The machine's former pid.
        pid: i32,
    },
    /// The pid belongs to another process by now.
    #[error("process {pid} is another process by now")]
    PidReused {
        /// The machine's former pid.
        pid: i32,
    },
    /// The process and its control socket are the right ones, but it does not answer now: it may
    /// be busy, or the host.
    #[error("the machine lives but does not answer: {reason}")]
    Silent {
        /// What was waited for.
        reason: String,
    },
    /// The process is the right one, but its control socket is not.
    #[error("the machine lives but cannot be controlled: {reason}")]
    Uncontrollable {
        /// What QMP said, or did not.
        reason: String,
    },
}
