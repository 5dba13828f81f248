//! The phases of a workspace as a state machine: what may be asked in each. Pure.
//!
//! ```text
//!            ┌──────────────── start ───────────────┐
//!            ▼                                      │
//! Creating ─► Starting ─► Running ─► Stopping ─► Stopped
//!    │           │           │                      ▲
//!    │ fails     │ fails     │ machine ends         │
//!    ▼           ▼           ▼                      │
//!  Failed     Crashed ◄── Crashed ───── stop ───────┘
//!
//! Running ◄── pause, resume ──► Paused     Running, Paused, Stopped, Crashed ── restore ──► Starting
//! Running ◄── disk of the host ──► HostDiskFull: as Running, but nothing is asked of its guest
//! Running, Paused ── park ──► Parked ── wake ──► Starting ──► Running
//! from any but Destroying: destroy ─► Destroying ─► gone
//! ```

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_machine::host_disk_full;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::codes;

/// The state that clients see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Being made for the first time.
    Creating,
    /// A machine is being started.
    Starting,
    /// The guest answers.
    Running,
    /// The machine stands still and loses nothing.
    Paused,
    /// The machine stands still since the host's disk has no room for what it writes. It goes on by
    /// itself when there is room.
    HostDiskFull,
    /// The machine is being stopped.
    Stopping,
    /// No machine; the disk is kept.
    Stopped,
    /// No machine; its memory and the disk are kept. Whoever wants something of it wakes it, and it
    /// goes on where it was.
    Parked,
    /// The machine ended without having been told to; the disk is kept.
    Crashed,
    /// Could not be made; only its logs are kept.
    Failed,
    /// Being removed.
    Destroying,
}

/// State of the machine's process on the host, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MachineProcess {
    /// There is no process.
    None,
    /// The process is there and its end will be noticed.
    Running,
    /// A process was started and its end is not proven: it may still run.
    Unknown,
}

/// A request to a workspace, as the state machine judges it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Something from the guest.
    Guest,
    /// Start the machine.
    Start,
    /// Start a machine that crashed, by policy.
    Restart,
    /// Stop the machine.
    Stop,
    /// Stop the machine with the daemon, whatever goes on.
    StopForDaemon,
    /// Halt the machine.
    Pause,
    /// Let the machine go on.
    Resume,
    /// Save the workspace with its memory and end the machine.
    Park,
    /// Start a parked machine where it was.
    Wake,
    /// Make a snapshot.
    Snapshot {
        /// With the machine's memory.
        memory: bool,
    },
    /// Delete a snapshot.
    DeleteSnapshot,
    /// Go back to a snapshot.
    Restore,
    /// Merge two layers that no disk or snapshot tells apart.
    MergeLayers,
    /// Change the network policy or the forwards.
    Network,
    /// Give the workspace another owner.
    Adopt,
    /// Give the workspace another end.
    Lifetime,
    /// Give a machine of the pool to somebody.
    Claim,
    /// Take up a machine that was left because it did not answer.
    Reattach,
    /// Remove a machine of the pool.
    Discard,
    /// Remove everything.
    Destroy,
}

impl Phase {
    /// The name on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::HostDiskFull => "host_disk_full",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Parked => "parked",
            Self::Crashed => "crashed",
            Self::Failed => "failed",
            Self::Destroying => "destroying",
        }
    }

    /// The phase that a request leads to at once.
    ///
    /// # Errors
    /// `workspace_busy` while another change is under way (retryable), or
    /// `workspace_state` when the request makes no sense now.
    pub fn on(self, want: Want) -> Result<Self, ToolError> {
        match (want, self) {
            (Want::Guest, Self::Running) => Ok(Self::Running),
            (Want::Start, Self::Stopped | Self::Crashed | Self::Parked)
            | (Want::Restart | Want::Reattach, Self::Crashed) => Ok(Self::Starting),
            (
                Want::Stop | Want::StopForDaemon,
                Self::Running | Self::Paused | Self::HostDiskFull | Self::Crashed,
            ) => Ok(Self::Stopping),
            (
                Want::Network,
                Self::Running
                | Self::Paused
                | Self::HostDiskFull
                | Self::Stopped
                | Self::Parked
                | Self::Crashed,
            )
            | (Want::Park, Self::Running | Self::Paused) => Ok(self),
            (Want::Wake, Self::Parked) => Ok(Self::Starting),
            (Want::Pause, Self::Running) => Ok(Self::Paused),
            (Want::Resume, Self::Paused) => Ok(Self::Running),
            (
                Want::Restore,
                Self::Running | Self::Paused | Self::HostDiskFull | Self::Stopped | Self::Crashed,
            ) => Ok(Self::Starting),
            (Want::Snapshot { .. }, Self::Running | Self::Paused)
            | (Want::Snapshot { memory: false }, Self::Stopped | Self::Parked | Self::Crashed)
            | (Want::MergeLayers, Self::Stopped)
            | (Want::Claim, Self::Running) => Ok(self),
            (Want::Snapshot { .. }, Self::Stopped | Self::Parked | Self::Crashed) => {
                Err(no_memory())
            }
            (Want::Snapshot { .. }, Self::Failed) => Err(self.busy()),
            // The workspace may be going back to this very snapshot.
            (Want::DeleteSnapshot, Self::Starting | Self::Destroying) => Err(self.busy()),
            (Want::Claim, _) => Err(not_claimable(format!("it is {}", self.word()))),
            (Want::Adopt, Self::Destroying) => Err(being_taken()),
            (Want::Lifetime, Self::Creating | Self::Destroying) => Err(self.busy()),
            (Want::Lifetime, Self::Failed) => Err(self.wrong(want)),
            (Want::DeleteSnapshot | Want::Adopt | Want::Lifetime, _) => Ok(self),
            (Want::Destroy | Want::Discard, Self::Destroying) => Err(self.busy()),
            // A machine that never comes up must not be indestructible.
            (Want::Destroy | Want::Discard, _) => Ok(Self::Destroying),
            (_, Self::Creating | Self::Starting | Self::Stopping | Self::Destroying) => {
                Err(self.busy())
            }
            (_, Self::HostDiskFull) => Err(host_disk_full()),
            (want, _) => Err(self.wrong(want)),
        }
    }

    pub(crate) fn busy(self) -> ToolError {
        ToolError::new(
            Layer::Actor,
            codes::WORKSPACE_BUSY,
            format!("the workspace is {}", self.word()),
        )
        .next("wait until workspace_info shows another state")
        .detail("state", self.word())
        .retry_after(std::time::Duration::from_secs(1))
    }

    fn wrong(self, want: Want) -> ToolError {
        let step = match (want, self) {
            (_, Self::Failed) => "read workspace_logs, then call workspace_destroy",
            (Want::Guest | Want::Start, Self::Paused) => "call workspace_resume first",
            (Want::Stop, Self::Parked) => {
                "workspace_start wakes it, or with from_disk gives its memory up"
            }
            (Want::Guest | Want::Restore, _) => "call workspace_start first",
            _ => "workspace_info shows the state",
        };
        ToolError::new(
            Layer::Actor,
            codes::WORKSPACE_STATE,
            format!("the workspace is {}", self.word()),
        )
        .next(step)
        .detail("state", self.word())
    }
}

/// The refusal of a take-over beside another one, or beside the removal.
pub(crate) fn being_taken() -> ToolError {
    ToolError::new(Layer::Actor, codes::WORKSPACE_BUSY, "it is being taken over or removed")
        .next("try again when that is done")
        .retry_after(std::time::Duration::from_secs(1))
}

/// The refusal to remove a machine that is not the pool's any more.
pub(crate) fn not_the_pools() -> ToolError {
    ToolError::new(Layer::Actor, codes::NOT_OWNER, "it is somebody's")
}

/// The refusal of a machine that the pool cannot give away now.
pub(crate) fn not_claimable(why: impl Into<String>) -> ToolError {
    ToolError::new(Layer::Actor, codes::NOT_CLAIMABLE, why.into())
}

/// The refusal of what a kind of machine without snapshots cannot do.
pub(crate) fn no_snapshots() -> ToolError {
    ToolError::new(
        Layer::Machine,
        codes::SNAPSHOT_UNSUPPORTED,
        "this kind of machine has no snapshots",
    )
    .next("make the workspace with isolation `vm`")
}

/// The refusal to park a sandbox.
pub(crate) fn cannot_park() -> ToolError {
    let message = "a sandbox has no memory of its own that could be saved";
    ToolError::new(Layer::Machine, codes::PARK_UNSUPPORTED, message)
        .next("call workspace_stop, or make the workspace with isolation `vm`")
}

fn no_memory() -> ToolError {
    let message = "a workspace that does not run has no memory";
    ToolError::new(Layer::Actor, codes::WORKSPACE_STATE, message)
        .next("call workspace_start first, or leave include_memory out")
}

#[cfg(test)]
pub(crate) const ALL_PHASES: [Phase; 11] = [
    Phase::Creating,
    Phase::Starting,
    Phase::Running,
    Phase::Paused,
    Phase::HostDiskFull,
    Phase::Stopping,
    Phase::Stopped,
    Phase::Parked,
    Phase::Crashed,
    Phase::Failed,
    Phase::Destroying,
];

#[cfg(test)]
mod tests {
    use super::{ALL_PHASES as ALL, Phase::*, *};

    #[test]
    fn only_a_running_guest_is_asked_anything() {
        for phase in ALL {
            assert_eq!(phase.on(Want::Guest).is_ok(), phase == Running, "{phase:?}");
        }
    }

    #[test]
    fn everything_can_be_destroyed_once() {
        for phase in ALL {
            assert_eq!(phase.on(Want::Destroy).is_ok(), phase != Destroying, "{phase:?}");
        }
    }

    #[test]
    fn passing_states_say_that_they_pass() {
        for phase in ALL {
            for want in [Want::Guest, Want::Start, Want::Stop, Want::Network] {
                if let Err(error) = phase.on(want) {
                    let passing =
                        matches!(phase, Creating | Starting | HostDiskFull | Stopping | Destroying);
                    assert_eq!(error.retryable, passing, "{phase:?} {want:?}");
                    assert_eq!(error.is(codes::HOST_DISK_FULL), phase == HostDiskFull);
                    assert!(error.next_step.is_some());
                }
            }
        }
    }
}
