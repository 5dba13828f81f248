//! State machine of one session. Pure.
//!
//! ```text
//!             last client gone
//!   Attached ─────────────────▶ Detached ──grace over, no call running──┐
//!      ▲ ◀─────────────────────────┘                                    ▼
//!      │         resumed           └──────────── told to end ───────▶ Ending ──written──▶ Ended
//!      └──────────────────────────────────────── told to end ───────────┘ │
//!   Attached or Detached ◀──────────────── could not be written ──────────┘
//! ```
//!
//! While it is ending nobody can attach, because the end may be written already.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Nobody resumed it within the grace time.
    GraceOver,
    /// An operator or a client ended the session.
    Told,
    /// The session held nothing and had no client when room was needed for another.
    MadeRoom,
    /// Its actor failed too often and was given up.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Attached,
    Detached,
    Ending(EndReason),
    Ended,
}

/// Events of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A client attached.
    Attached,
    /// Clients were counted: so many are attached.
    Counted(u32),
    /// The timer of this number went off; `busy` when a call is running.
    GraceOver { timer: u64, busy: bool },
    /// Somebody orders the end.
    End(EndReason),
    /// The end is in the journal.
    EndWritten,
    /// The end could not be written; so many clients are attached.
    EndFailed(u32),
}

/// Effects that the actor has to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Tell that it was resumed.
    TellResumed,
    /// Tell that its last client has gone.
    TellDetached,
    /// Start the grace timer of this number.
    StartTimer(u64),
    /// Write the end.
    WriteEnd(EndReason),
    /// Finish the actor: the session is over.
    Finish(EndReason),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    phase: Phase,
    /// Number of the timer that counts; all others are stale.
    timer: u64,
    /// True when the session does not end by itself.
    lasting: bool,
}

impl Machine {
    /// A session as it was last told to be. Count its clients next.
    pub(super) fn new(lasting: bool, attached: bool) -> (Self, Vec<Effect>) {
        let mut machine = Self { phase: Phase::Attached, timer: 0, lasting };
        let effects = if attached { Vec::new() } else { machine.detach() };
        (machine, effects)
    }

    /// True when a client may attach.
    pub(super) fn open(&self) -> bool {
        matches!(self.phase, Phase::Attached | Phase::Detached)
    }

    pub(super) fn apply(&mut self, event: Event) -> Vec<Effect> {
        match (self.phase, event) {
            (Phase::Detached, Event::Attached | Event::Counted(1..)) => {
                self.phase = Phase::Attached;
                vec![Effect::TellResumed]
            }
            (Phase::Attached, Event::Attached) => vec![Effect::TellResumed],
            (Phase::Attached, Event::Counted(0)) => {
                let mut effects = vec![Effect::TellDetached];
                effects.extend(self.detach());
                effects
            }
            (Phase::Detached, Event::GraceOver { timer, busy }) if timer == self.timer => {
                if busy {
                    self.detach()
                } else {
                    self.end(EndReason::GraceOver)
                }
            }
            (Phase::Attached | Phase::Detached, Event::End(reason)) => self.end(reason),
            (Phase::Ending(reason), Event::EndWritten) => {
                self.phase = Phase::Ended;
                vec![Effect::Finish(reason)]
            }
            (Phase::Ending(_), Event::EndFailed(attached)) => {
                self.phase = Phase::Attached;
                if attached == 0 { self.detach() } else { Vec::new() }
            }
            _ => Vec::new(),
        }
    }

    /// Detached, with the whole grace time before it.
    fn detach(&mut self) -> Vec<Effect> {
        self.phase = Phase::Detached;
        self.timer += 1;
        if self.lasting { Vec::new() } else { vec![Effect::StartTimer(self.timer)] }
    }

    fn end(&mut self, reason: EndReason) -> Vec<Effect> {
        self.phase = Phase::Ending(reason);
        vec![Effect::WriteEnd(reason)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn detached() -> Machine {
        Machine::new(false, false).0
    }

    #[test]
    fn the_grace_time_begins_when_the_last_client_goes() {
        let (mut machine, effects) = Machine::new(false, true);
        assert_eq!(effects, []);
        assert_eq!(machine.apply(Event::Counted(1)), []);
        let gone = machine.apply(Event::Counted(0));
        assert_eq!(gone, [Effect::TellDetached, Effect::StartTimer(1)]);
        let over = machine.apply(Event::GraceOver { timer: 1, busy: false });
        assert_eq!(over, [Effect::WriteEnd(EndReason::GraceOver)]);
        assert!(!machine.open());
        assert_eq!(machine.apply(Event::EndWritten), [Effect::Finish(EndReason::GraceOver)]);
    }

    #[test]
    fn a_timer_from_before_a_resume_does_not_count() {
        let mut machine = detached();
        assert_eq!(machine.apply(Event::Attached), [Effect::TellResumed]);
        let _ = machine.apply(Event::Counted(0));
        assert_eq!(machine.apply(Event::GraceOver { timer: 1, busy: false }), []);
        assert!(machine.open());
    }

    #[test]
    fn a_running_call_keeps_it() {
        let mut machine = detached();
        let again = machine.apply(Event::GraceOver { timer: 1, busy: true });
        assert_eq!(again, [Effect::StartTimer(2)]);
    }

    #[test]
    fn a_lasting_session_has_no_timer() {
        let (mut machine, effects) = Machine::new(true, true);
        assert_eq!(effects, []);
        assert_eq!(machine.apply(Event::Counted(0)), [Effect::TellDetached]);
        let told = machine.apply(Event::End(EndReason::Told));
        assert_eq!(told, [Effect::WriteEnd(EndReason::Told)]);
    }

    #[test]
    fn an_end_that_cannot_be_written_is_no_end() {
        let mut machine = detached();
        let _ = machine.apply(Event::End(EndReason::Told));
        assert_eq!(machine.apply(Event::EndFailed(0)), [Effect::StartTimer(2)]);
        assert!(machine.open());
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Attached),
            (0u32..2).prop_map(Event::Counted),
            (0u64..6, any::<bool>()).prop_map(|(timer, busy)| Event::GraceOver { timer, busy }),
            Just(Event::End(EndReason::Told)),
            Just(Event::EndWritten),
            (0u32..2).prop_map(Event::EndFailed),
        ]
    }

    proptest! {
        #[test]
        fn it_ends_once_after_its_end_was_written(events in prop::collection::vec(event(), 0..60)) {
            let (mut machine, mut writing, mut finished) = (detached(), false, 0);
            for event in events {
                // The journal answers only what it was asked.
                let answers = matches!(event, Event::EndWritten | Event::EndFailed(_));
                if answers && !writing {
                    continue;
                }
                writing &= !answers;
                for effect in machine.apply(event) {
                    match effect {
                        Effect::WriteEnd(_) => {
                            prop_assert!(!writing && finished == 0);
                            writing = true;
                        }
                        Effect::Finish(_) => {
                            prop_assert_eq!(event, Event::EndWritten);
                            finished += 1;
                        }
                        _ => prop_assert_eq!(finished, 0, "after its end"),
                    }
                }
                prop_assert!(finished <= 1);
                prop_assert_eq!(machine.open(), !writing && finished == 0);
            }
        }
    }
}
