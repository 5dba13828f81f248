//! Circuit breaker: after failures in a row requests are refused at once for a while; then one is tried.
//!
//! ```text
//! closed ── failures in a row ──▶ open ── time over ──▶ half open: one request
//!   ▲                              ▲                        │
//!   │                              └──────── it fails ──────┤
//!   └───────────────────────────────────── it succeeds ─────┘
//! ```
//! Pure: the caller supplies the time.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// A trial request is running.
    HalfOpen,
}

/// Breaker of one provider.
#[derive(Debug, Clone)]
pub(crate) struct Breaker {
    most: u32,
    pause: Duration,
    state: State,
}

impl Breaker {
    pub(crate) fn new(most: u32, pause: Duration) -> Self {
        Self { most, pause, state: State::Closed { failures: 0 } }
    }

    /// Admits a request, or returns the time for which none is admitted.
    ///
    /// # Errors
    /// The time after which it makes sense to ask again.
    pub(crate) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        match self.state {
            State::Closed { .. } => Ok(()),
            State::Open { until } if now < until => Err(until - now),
            State::Open { .. } => {
                self.state = State::HalfOpen;
                Ok(())
            }
            State::HalfOpen => Err(Duration::from_secs(1)),
        }
    }

    /// A request ended: `Some(true)` when the provider answered, `Some(false)` when it failed, `None` when
    /// that says nothing about it.
    pub(crate) fn ended(&mut self, works: Option<bool>, now: Instant) {
        self.state = match (self.state, works) {
            (State::Closed { .. }, Some(true)) | (State::HalfOpen, Some(true)) => {
                State::Closed { failures: 0 }
            }
            (State::Closed { failures }, Some(false)) if failures + 1 < self.most => {
                State::Closed { failures: failures + 1 }
            }
            (State::Closed { .. } | State::HalfOpen, Some(false)) => {
                State::Open { until: now + self.pause }
            }
            // The trial showed nothing, so the next request is a trial.
            (State::HalfOpen, None) => State::Open { until: now },
            // An answer to a request from before the breaker opened.
            (State::Open { .. }, Some(true)) => State::Closed { failures: 0 },
            (state @ (State::Open { .. } | State::Closed { .. }), _) => state,
        };
    }

    /// Time for which no request is admitted; `None` when the breaker is closed.
    pub(crate) fn open_for(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Closed { .. } => None,
            State::Open { until } => Some(until.saturating_duration_since(now)),
            State::HalfOpen => Some(Duration::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_and_closes_after_a_good_trial() {
        let now = Instant::now();
        let pause = Duration::from_secs(30);
        let mut breaker = Breaker::new(3, pause);
        for works in [false, false, true, false, false] {
            assert_eq!(breaker.admit(now), Ok(()));
            breaker.ended(Some(works), now);
        }
        assert_eq!(breaker.open_for(now), None, "a success in between begins anew");
        breaker.ended(Some(false), now);
        assert_eq!(breaker.admit(now), Err(pause));
        let later = now + pause;
        assert_eq!(breaker.admit(later), Ok(()), "one is tried");
        assert!(breaker.admit(later).is_err(), "and no other beside it");
        breaker.ended(Some(false), later);
        assert_eq!(breaker.admit(later), Err(pause), "a trial that fails opens it again");
        let last = later + pause;
        assert_eq!(breaker.admit(last), Ok(()));
        breaker.ended(None, last);
        assert_eq!(breaker.admit(last), Ok(()), "a trial that says nothing is followed by another");
        breaker.ended(Some(true), last);
        assert_eq!((breaker.open_for(last), breaker.admit(last)), (None, Ok(())));
    }
}
