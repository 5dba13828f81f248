//! Status of a workspace: its phase, the work under way, whether a process of its machine is left, and
//! the end by lifetime as far as it is not recorded. Pure.
//!
//! A start, stop or re-attachment that fails can leave a process. The workspace is `crashed` then,
//! and is never said to have no process.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{RestartPolicy, ToolError, supervise::RestartCounter};
use hivekeep_machine::{MachineHandle, ProcessId};
use tokio::time::Instant;

use crate::{
    activity::{Activity, Situation},
    ledger::Ledger,
    phase::{MachineProcess, Phase},
};

/// Pause before a failed end is tried again; it doubles with each failure, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Phase of a workspace, and the work under way.
pub(crate) struct WorkspaceStatus {
    pub(crate) phase: Phase,
    /// Why the workspace crashed or failed.
    pub(crate) reason: Option<String>,
    /// Work under way on disk and machine.
    pub(crate) activity: Activity,
    /// Held by changes of forwards that are under way.
    pub(crate) forwarding: Arc<()>,
    /// An adoption is under way.
    pub(crate) adopting: bool,
}

impl WorkspaceStatus {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Creating,
            reason: None,
            activity: Activity::Idle,
            forwarding: Arc::default(),
            adopting: false,
        }
    }

    /// State that decides which requests are allowed; `unfinished` is a recorded change of the disk.
    pub(crate) fn situation(&self, unfinished: bool) -> Situation {
        Situation {
            phase: self.phase,
            activity: self.activity,
            forwarding: Arc::strong_count(&self.forwarding) > 1,
            unfinished,
            adopting: self.adopting,
        }
    }

    /// Ends an activity, unless another one goes on by now.
    pub(crate) fn finished(&mut self, activity: Activity) {
        if self.activity == activity {
            self.activity = Activity::Idle;
        }
    }

    /// Word for `hivekeep ps`.
    pub(crate) fn word(&self, process: MachineProcess) -> &'static str {
        match (self.phase, process) {
            (Phase::Crashed, MachineProcess::Running) => "crashed, machine runs",
            (Phase::Crashed, MachineProcess::Unknown) => "crashed, machine may run",
            _ => self.phase.word(),
        }
    }

    /// Why the workspace crashed or failed, and what can be done about a process that is left.
    pub(crate) fn explained(&self, process: MachineProcess) -> Option<String> {
        let reason = self.reason.clone()?;
        let left = match (self.phase, process) {
            (Phase::Crashed, MachineProcess::Running) => "runs",
            (Phase::Crashed, MachineProcess::Unknown) => "may still run",
            _ => return Some(reason),
        };
        Some(format!(
            "{reason}; the machine's process {left}: workspace_stop ends it, and workspace_start \
             ends it before it starts another"
        ))
    }
}

/// The machine's process, as far as the records do not say.
pub(crate) struct WatchedMachine {
    /// The machine that a child watches.
    pub(crate) watched: Option<MachineHandle>,
    /// A launched machine whose record is under way. A start that is given up meanwhile leaves it here.
    pub(crate) unrecorded: Option<Box<MachineHandle>>,
    /// The machine that was last seen to end; its record may be under way.
    pub(crate) ended: Option<ProcessId>,
    pub(crate) crashes: RestartCounter,
}

impl WatchedMachine {
    pub(crate) fn new(restarts: RestartPolicy) -> Self {
        let crashes = RestartCounter::new(restarts);
        Self { watched: None, unrecorded: None, ended: None, crashes }
    }

    /// Drops the unrecorded machine once it is the recorded one.
    pub(crate) fn recorded(&mut self, ledger: &Ledger) {
        let recorded = ledger.handle().map(|handle| handle.process);
        self.unrecorded.take_if(|machine| recorded == Some(machine.process));
    }

    /// Whether a process is there, or may be.
    pub(crate) fn process(&self, ledger: &Ledger) -> MachineProcess {
        if self.watched.is_some() {
            return MachineProcess::Running;
        }
        let recorded = ledger.handle().map(|handle| handle.process);
        let ended = recorded.is_some() && recorded == self.ended;
        match ledger.process_may_be_left() && !ended {
            true => MachineProcess::Unknown,
            false => MachineProcess::None,
        }
    }
}

/// Unrecorded state of an end.
#[derive(Default)]
pub(crate) struct LifetimeEnd {
    /// Whether a step of the end is under way.
    pub(crate) under_way: bool,
    delayed: Option<Delayed>,
    /// Held by changes of the lifetime under way: an end waits for them.
    pub(crate) changes: Arc<()>,
}

struct Delayed {
    why: ToolError,
    pause: Duration,
    again_at: Instant,
}

impl LifetimeEnd {
    /// Why the end was not carried out when it was due.
    pub(crate) fn delayed(&self) -> Option<String> {
        self.delayed.as_ref().map(|delayed| delayed.why.to_text())
    }

    /// Whether no step is to be begun now.
    pub(crate) fn waits(&self) -> bool {
        let changes = Arc::strong_count(&self.changes) > 1;
        self.under_way
            || changes
            || self.delayed.as_ref().is_some_and(|it| Instant::now() < it.again_at)
    }

    /// Clears the delay.
    pub(crate) fn undelay(&mut self) {
        self.delayed = None;
    }

    /// Delays an end that failed; true if the error is another one than before.
    pub(crate) fn delay(&mut self, why: ToolError) -> bool {
        let before = self.delayed.take();
        let pause = before.as_ref().map_or(FIRST_PAUSE, |it| (it.pause * 2).min(LONGEST_PAUSE));
        let news = before.is_none_or(|before| before.why.code != why.code);
        self.delayed = Some(Delayed { why, pause, again_at: Instant::now() + pause });
        news
    }
}
