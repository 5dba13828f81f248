//! Health of a provider: its circuit breaker, and what is readable without a message to its actor.
//!
//! After failures in a row the breaker refuses requests at once for a while; then one is tried.
//!
//! ```text
//! closed ── failures in a row ──▶ open ── time over ──▶ half open: one request
//!   ▲                              ▲                        │
//!   │                              └──────── it fails ──────┤
//!   └───────────────────────────────────── it succeeds ─────┘
//! ```

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::lock;
use hivekeep_ports::{ConfiguredModel, ModelSource, ModelUse};
use hivekeep_runtime::host_process::HostUsers;
use tokio::{sync::watch, time::Instant};

use super::{Outcome, server::ServerState};
use crate::{ModelOptions, ModelProviderOptions, ModelPurpose, ProviderName, backend::Backend};

/// Weight of the newest measurement of a latency, of 8.
const NEWEST: u32 = 2;
/// Time that stands for a failure where providers are ordered by their latency.
const FAILED_AS: Duration = Duration::from_secs(30);

/// A failure, for display.
#[derive(Debug, Clone)]
pub(crate) struct LastFailure {
    pub(crate) at: DateTime<Utc>,
    pub(crate) message: String,
}

/// Health of a provider.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProviderHealth {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    /// End of the time in which the breaker lets nothing through.
    pub(crate) open_until: Option<Instant>,
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) last_failure: Option<LastFailure>,
    /// Time to the first piece of an answer, as a moving average.
    pub(crate) first_piece: Option<Duration>,
}

/// Everything about a provider but its mailbox.
pub(crate) struct ProviderShared {
    pub(crate) name: ProviderName,
    pub(crate) options: ModelProviderOptions,
    pub(crate) home: std::path::PathBuf,
    pub(crate) users: HostUsers,
    pub(crate) server: watch::Sender<ServerState>,
    health: watch::Sender<ProviderHealth>,
    backend: Mutex<Option<Arc<Backend>>>,
}

impl ProviderShared {
    pub(crate) fn new(
        name: ProviderName,
        options: ModelProviderOptions,
        home: std::path::PathBuf,
        users: HostUsers,
    ) -> Self {
        let server = watch::Sender::new(ServerState::default());
        Self {
            name,
            options,
            home,
            users,
            server,
            health: watch::Sender::default(),
            backend: Mutex::default(),
        }
    }

    pub(crate) fn source(&self, model: &str) -> ModelSource {
        ModelSource {
            provider: self.name.to_string(),
            provider_kind: self.options.kind.word(),
            model: model.to_owned(),
        }
    }

    pub(crate) fn configured(&self) -> impl Iterator<Item = ConfiguredModel> + '_ {
        self.options.models.iter().map(|(name, model)| ConfiguredModel {
            source: self.source(name),
            usage: usage(model),
            local: self.options.is_local(),
            parallel: self.options.at_a_time(),
        })
    }

    pub(crate) fn health(&self) -> ProviderHealth {
        self.health.borrow().clone()
    }

    /// The backend of the last incarnation, for looks beside the mailbox.
    pub(crate) fn backend(&self) -> Option<Arc<Backend>> {
        lock(&self.backend).clone()
    }

    pub(super) fn publish(&self, backend: Arc<Backend>) {
        *lock(&self.backend) = Some(backend);
    }

    pub(super) fn tell(
        &self,
        running: usize,
        waiting: usize,
        open_for: Option<Duration>,
        outcome: &Outcome,
    ) {
        self.health.send_modify(|health| {
            (health.running, health.waiting) = (running, waiting);
            health.open_until = open_for.map(|wait| Instant::now() + wait);
            match outcome.works {
                Some(true) => health.answered += 1,
                Some(false) => health.failed += 1,
                None => {}
            }
            if outcome.failure.is_some() {
                health.last_failure.clone_from(&outcome.failure);
            }
            let failed = (outcome.works == Some(false)).then_some(FAILED_AS);
            if let Some(newest) = outcome.first_piece.or(failed) {
                let before = health.first_piece.unwrap_or(newest);
                health.first_piece = Some((before * (8 - NEWEST) + newest * NEWEST) / 8);
            }
        });
    }

    /// A line for `hivekeep ps`.
    pub(super) fn detail(&self) -> String {
        let health = self.health();
        let open = if health.open_until.is_some() { ", left alone" } else { "" };
        format!(
            "{}, {} running, {} waiting{open}",
            self.options.kind.word(),
            health.running,
            health.waiting
        )
    }
}

pub(crate) fn usage(model: &ModelOptions) -> ModelUse {
    match model.purpose {
        ModelPurpose::Generate => ModelUse::Generate,
        ModelPurpose::Embed => ModelUse::Embed,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakerState {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// A trial request is running.
    HalfOpen,
}

/// Circuit breaker of one provider. Pure: the caller supplies the time.
#[derive(Debug, Clone)]
pub(super) struct Breaker {
    most: u32,
    pause: Duration,
    state: BreakerState,
}

impl Breaker {
    pub(super) fn new(most: u32, pause: Duration) -> Self {
        Self { most, pause, state: BreakerState::Closed { failures: 0 } }
    }

    /// Admits a request, or returns the time for which none is admitted.
    ///
    /// # Errors
    /// The time after which it makes sense to ask again.
    pub(super) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        match self.state {
            BreakerState::Closed { .. } => Ok(()),
            BreakerState::Open { until } if now < until => Err(until - now),
            BreakerState::Open { .. } => {
                self.state = BreakerState::HalfOpen;
                Ok(())
            }
            BreakerState::HalfOpen => Err(Duration::from_secs(1)),
        }
    }

    /// A request ended: `Some(true)` when the provider answered, `Some(false)` when it failed, `None` when
    /// that says nothing about it.
    pub(super) fn ended(&mut self, works: Option<bool>, now: Instant) {
        self.state = match (self.state, works) {
            (BreakerState::Closed { .. }, Some(true)) | (BreakerState::HalfOpen, Some(true)) => {
                BreakerState::Closed { failures: 0 }
            }
            (BreakerState::Closed { failures }, Some(false)) if failures + 1 < self.most => {
                BreakerState::Closed { failures: failures + 1 }
            }
            (BreakerState::Closed { .. } | BreakerState::HalfOpen, Some(false)) => {
                BreakerState::Open { until: now + self.pause }
            }
            // The trial showed nothing, so the next request is a trial.
            (BreakerState::HalfOpen, None) => BreakerState::Open { until: now },
            // An answer to a request from before the breaker opened.
            (BreakerState::Open { .. }, Some(true)) => BreakerState::Closed { failures: 0 },
            (state @ (BreakerState::Open { .. } | BreakerState::Closed { .. }), _) => state,
        };
    }

    /// Time for which no request is admitted; `None` when the breaker is closed.
    pub(super) fn open_for(&self, now: Instant) -> Option<Duration> {
        match self.state {
            BreakerState::Closed { .. } => None,
            BreakerState::Open { until } => Some(until.saturating_duration_since(now)),
            BreakerState::HalfOpen => Some(Duration::ZERO),
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
