//! The whole table, against the rules as they were when each activity was a flag of its own.

use hivekeep_kernel::ToolError;

use super::*;
use crate::phase::{ALL_PHASES, Phase::*};

const ACTIVITIES: [Activity; 10] = [
    Activity::Idle,
    Activity::Pausing,
    Activity::Snapshotting,
    Activity::DeletingSnapshot,
    Activity::MergingLayers,
    Activity::Preparing,
    Activity::Claiming,
    Activity::Reattaching,
    Activity::Parking,
    Activity::Waking,
];

const WANTS: [Want; 21] = [
    Want::Guest,
    Want::Start,
    Want::Restart,
    Want::Stop,
    Want::StopForDaemon,
    Want::Pause,
    Want::Resume,
    Want::Park,
    Want::Wake,
    Want::Snapshot { memory: false },
    Want::Snapshot { memory: true },
    Want::DeleteSnapshot,
    Want::Restore,
    Want::MergeLayers,
    Want::Network,
    Want::Adopt,
    Want::Lifetime,
    Want::Claim,
    Want::Reattach,
    Want::Discard,
    Want::Destroy,
];

type Verdict = Result<Phase, &'static str>;

const BUSY: Verdict = Err("workspace_busy");

/// The former flags.
struct Flags {
    phase: Phase,
    changing: bool,
    forwarding: bool,
    unfinished: bool,
    adopting: bool,
    claiming: bool,
    reattaching: bool,
    /// Being parked or woken.
    moving: bool,
}

impl Flags {
    fn idle(&self) -> Result<(), &'static str> {
        if self.forwarding || self.changing { Err("workspace_busy") } else { Ok(()) }
    }

    fn unchanging(&self) -> Result<(), &'static str> {
        self.idle()?;
        if self.unfinished { Err("snapshot_unfinished") } else { Ok(()) }
    }

    /// What a phase alone says to a request that it lets pass in these phases.
    fn in_phases(&self, pass: &[Phase], next: Phase) -> Verdict {
        match self.phase {
            phase if pass.contains(&phase) => Ok(next),
            Creating | Starting | Stopping | Destroying => BUSY,
            HostDiskFull => Err("host_disk_full"),
            _ => Err("workspace_state"),
        }
    }

    fn judge(&self, want: Want) -> Verdict {
        let phase = self.phase;
        let standing = [Running, Paused, HostDiskFull, Stopped, Crashed];
        let member = [Running, Paused, HostDiskFull, Stopped, Parked, Crashed];
        match want {
            Want::Guest if self.reattaching && phase == Starting => Ok(Starting),
            Want::Guest => self.in_phases(&[Running], Running),
            Want::Start => {
                let next = self.in_phases(&[Stopped, Parked, Crashed], Starting)?;
                self.idle().map(|()| next)
            }
            Want::Restart if phase != Crashed => Err("workspace_state"),
            Want::Restart => self.idle().map(|()| Starting),
            Want::Stop => {
                let next = self.judge(Want::StopForDaemon)?;
                self.idle().map(|()| next)
            }
            Want::StopForDaemon => {
                self.in_phases(&[Running, Paused, HostDiskFull, Crashed], Stopping)
            }
            Want::Pause => {
                self.unchanging()?;
                self.in_phases(&[Running], Paused)
            }
            Want::Resume => {
                self.unchanging()?;
                self.in_phases(&[Paused], Running)
            }
            Want::Snapshot { memory } => {
                self.unchanging()?;
                match (phase, memory) {
                    (Running | Paused, _) | (Stopped | Parked | Crashed, false) => Ok(phase),
                    (Stopped | Parked | Crashed, true) => Err("workspace_state"),
                    (HostDiskFull, _) => Err("host_disk_full"),
                    _ => BUSY,
                }
            }
            Want::DeleteSnapshot => {
                self.unchanging()?;
                if matches!(phase, Starting | Destroying) { BUSY } else { Ok(phase) }
            }
            Want::Restore => {
                self.unchanging()?;
                self.in_phases(&standing, Starting)
            }
            Want::MergeLayers => {
                let settled = !self.changing && !self.unfinished;
                if phase == Stopped && settled { Ok(Stopped) } else { Err("not merged") }
            }
            Want::Network => self.in_phases(&member, phase),
            Want::Park | Want::Wake if self.adopting => BUSY,
            Want::Park => {
                self.unchanging()?;
                self.in_phases(&[Running, Paused], phase)
            }
            // Not beside another activity, whatever is forwarded.
            Want::Wake if self.changing => BUSY,
            Want::Wake => self.in_phases(&[Parked], Starting),
            Want::Adopt if self.moving => BUSY,
            Want::Adopt if self.adopting || phase == Destroying => BUSY,
            Want::Adopt => Ok(phase),
            Want::Lifetime if matches!(phase, Creating | Destroying) => BUSY,
            Want::Lifetime if phase == Failed => Err("workspace_state"),
            Want::Lifetime => Ok(phase),
            Want::Claim if self.claiming || phase != Running => Err("not_claimable"),
            Want::Claim => Ok(Running),
            Want::Reattach if phase == Crashed => Ok(Starting),
            Want::Reattach => Err("not taken up"),
            Want::Discard if self.claiming => Err("not_owner"),
            Want::Discard if phase == Destroying => BUSY,
            Want::Discard => self.idle().map(|()| Destroying),
            Want::Destroy if phase == Destroying => BUSY,
            Want::Destroy => self.idle().map(|()| Destroying),
        }
    }
}

fn every(mut look: impl FnMut(Situation, &Flags)) {
    for phase in ALL_PHASES {
        for activity in ACTIVITIES {
            for bits in 0..8 {
                let [forwarding, unfinished, adopting] = [1, 2, 4].map(|bit| bits & bit != 0);
                let situation = Situation { phase, activity, forwarding, unfinished, adopting };
                let flags = Flags {
                    phase,
                    changing: !matches!(
                        activity,
                        Activity::Idle | Activity::Claiming | Activity::Reattaching
                    ),
                    forwarding,
                    unfinished,
                    adopting,
                    claiming: activity == Activity::Claiming,
                    reattaching: activity == Activity::Reattaching,
                    moving: matches!(activity, Activity::Parking | Activity::Waking),
                };
                look(situation, &flags);
            }
        }
    }
}

#[test]
fn every_verdict_is_that_of_the_flags() {
    every(|situation, flags| {
        for want in WANTS {
            let verdict = situation.on(want);
            let before = flags.judge(want);
            // A merge is not asked for by anybody who hears a code, and is told to nobody.
            let silent = matches!(want, Want::MergeLayers | Want::Reattach | Want::Restart);
            // Another activity never meets a claim, and a machine is not taken up beside one.
            let apart = matches!(want, Want::Claim | Want::Reattach) && flags.changing;
            match (&verdict, before) {
                (Ok(next), Ok(before)) => assert_eq!(*next, before, "{situation:?} {want:?}"),
                (Err(_), Err(_)) if silent => {}
                (Err(error), Err(before)) if !apart => {
                    assert_eq!(error.code, before, "{situation:?} {want:?}");
                }
                (Err(_), _) if apart => {}
                _ => panic!("{situation:?} {want:?}: {verdict:?}, before {before:?}"),
            }
        }
    });
}

/// What begins an activity is refused beside any other one that excludes it, so that there is one.
#[test]
fn an_activity_begins_beside_no_other_one() {
    let begins = [
        Want::Pause,
        Want::Resume,
        Want::Park,
        Want::Wake,
        Want::Snapshot { memory: false },
        Want::Snapshot { memory: true },
        Want::DeleteSnapshot,
        Want::MergeLayers,
        Want::Claim,
        Want::Reattach,
    ];
    every(|situation, flags| {
        for want in begins {
            assert!(!flags.changing || situation.on(want).is_err(), "{situation:?} {want:?}");
        }
    });
}

#[test]
fn what_passes_is_retryable_and_what_does_not_says_what_to_do() {
    every(|situation, _| {
        for want in WANTS {
            let Err(error) = situation.on(want) else { continue };
            let passing = ["workspace_busy", "host_disk_full"].contains(&&*error.code);
            assert_eq!(error.retryable, passing, "{situation:?} {want:?} {error:?}");
            let helped = |error: &ToolError| {
                error.next_step.is_some()
                    || matches!(want, Want::Adopt | Want::Claim | Want::Discard)
            };
            assert!(helped(&error), "{situation:?} {want:?} {error:?}");
        }
    });
}
