//! Table of which work excludes which requests to a workspace: by its phase, the work under way and
//! the request. Pure.
//!
//! ```text
//! wanted                                      needs besides its phase
//! ──────────────────────────────────────────  ────────────────────────────────────────────────
//! Guest, Network, StopForDaemon, Adopt,       nothing
//!   Lifetime
//! Start, Restart, Stop, Destroy, Discard      no activity on disk or machine, no forward under way
//! Pause, Resume, Park, Snapshot,              the same, and no change of the disk that a crash
//!   DeleteSnapshot, Restore                     cut short
//! MergeLayers                                 no activity, no change that was cut short
//! Claim, Reattach, Wake                       no activity
//! ```
//! An [`Activity`] has the disk or the machine to itself, so there is one at a time. Two kinds of work
//! are not activities: port forwards, of which several change at a time and beside a snapshot, because
//! they touch neither disk nor machine; and a change of owner, which touches only records and quota.
//! A change of owner excludes a park or a wake, which give quota back and take it.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};

use crate::codes;
use crate::phase::{Phase, Want, being_taken, not_claimable, not_the_pools};

/// Work that has the disk or the machine of a workspace to itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Activity {
    /// No work.
    #[default]
    Idle,
    /// The machine is being paused or resumed.
    Pausing,
    /// A snapshot is being made.
    Snapshotting,
    /// A snapshot is being deleted.
    DeletingSnapshot,
    /// A merge of two layers, which is complete, is being recorded.
    MergingLayers,
    /// `workspace_prepare` is making the workspace, from its first boot to the snapshot.
    Preparing,
    /// A machine of the pool is being given to somebody.
    Claiming,
    /// A machine that outlived the daemon is taken up: calls to its guest wait.
    Reattaching,
    /// The workspace is being parked: calls to its guest wait, and wake it.
    Parking,
    /// The workspace is being woken: calls to its guest wait.
    Waking,
}

/// Everything that decides what may be asked of a workspace now.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    /// The state that clients see.
    pub phase: Phase,
    /// The work under way.
    pub activity: Activity,
    /// A forward of a port is being added or removed.
    pub forwarding: bool,
    /// A change of the disk was begun and not ended, as recorded.
    pub unfinished: bool,
    /// Another session is taking the workspace over.
    pub adopting: bool,
}

impl Situation {
    /// The phase that a request leads to.
    ///
    /// # Errors
    /// Errors of [`Phase::on`]; `workspace_busy` for work under way, `snapshot_unfinished` for a change
    /// that was cut short, `not_claimable` and `not_owner` for a machine that is being given away.
    pub fn on(self, want: Want) -> Result<Phase, ToolError> {
        match want {
            // Calls to a machine that is being taken up again wait; they are not refused.
            Want::Guest if self.reattaches() => Ok(self.phase),
            Want::Start | Want::Restart | Want::Stop | Want::Destroy => {
                let next = self.phase.on(want)?;
                self.undisturbed(want).map(|()| next)
            }
            _ => {
                self.undisturbed(want)?;
                self.phase.on(want)
            }
        }
    }

    /// Whether no work under way excludes a request, whatever the phase is.
    ///
    /// # Errors
    /// Errors of [`Self::on`], except those of the phase.
    pub fn undisturbed(self, want: Want) -> Result<(), ToolError> {
        match want {
            Want::Guest | Want::Network | Want::Lifetime | Want::StopForDaemon => Ok(()),
            Want::Adopt if self.adopting => Err(being_taken()),
            // A park or a wake changes the workspace's quota too.
            Want::Adopt if matches!(self.activity, Activity::Parking | Activity::Waking) => {
                self.idle()
            }
            Want::Adopt => Ok(()),
            Want::Claim if self.activity == Activity::Claiming => {
                Err(not_claimable("it is somebody's already"))
            }
            Want::Discard if self.activity == Activity::Claiming => Err(not_the_pools()),
            // While the machine is being removed, the phase gives the refusal.
            Want::Discard if self.phase == Phase::Destroying => Ok(()),
            Want::Park | Want::Wake if self.adopting => Err(being_taken()),
            Want::Claim | Want::Reattach | Want::Wake => self.idle(),
            Want::Start | Want::Restart | Want::Stop | Want::Destroy | Want::Discard => {
                self.unforwarded().and_then(|()| self.idle())
            }
            Want::MergeLayers => self.idle().and_then(|()| self.finished()),
            Want::Pause
            | Want::Resume
            | Want::Park
            | Want::Snapshot { .. }
            | Want::DeleteSnapshot
            | Want::Restore => {
                self.unforwarded().and_then(|()| self.idle()).and_then(|()| self.finished())
            }
        }
    }

    fn reattaches(self) -> bool {
        self.activity == Activity::Reattaching && self.phase == Phase::Starting
    }

    fn unforwarded(self) -> Result<(), ToolError> {
        if self.forwarding { Err(being("having its ports forwarded")) } else { Ok(()) }
    }

    fn idle(self) -> Result<(), ToolError> {
        Err(being(match self.activity {
            // A machine that is given away or taken up is stopped and removed like any other.
            Activity::Idle | Activity::Claiming | Activity::Reattaching => return Ok(()),
            Activity::Pausing => "being paused or resumed",
            Activity::Snapshotting => "being snapshotted",
            Activity::DeletingSnapshot => "losing a snapshot",
            Activity::MergingLayers => "having its layers merged",
            Activity::Preparing => "being prepared",
            Activity::Parking => "being parked",
            Activity::Waking => "being woken",
        }))
    }

    fn finished(self) -> Result<(), ToolError> {
        if !self.unfinished {
            return Ok(());
        }
        let message =
            "an earlier snapshot or restore was cut short; the workspace's next start ends it";
        Err(ToolError::new(Layer::Actor, codes::SNAPSHOT_UNFINISHED, message)
            .next("call workspace_start, after workspace_stop if the workspace runs"))
    }
}

fn being(what: &str) -> ToolError {
    ToolError::new(Layer::Actor, codes::WORKSPACE_BUSY, format!("the workspace is {what}"))
        .next("try again when that is done")
        .retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests;
