//! Health of a provider, readable without a message to its actor.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::ports::{ConfiguredModel, ModelSource, ModelUse};
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
        self.backend.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn publish(&self, backend: Arc<Backend>) {
        *self.backend.lock().unwrap_or_else(PoisonError::into_inner) = Some(backend);
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
