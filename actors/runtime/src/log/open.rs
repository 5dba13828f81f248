//! A registry of the open logs of a kind, which outlives the actors that decide on them.
//!
//! A log goes on writing when its actor ends: what was decided will be on the disk. Whoever read the
//! stream from the journal meanwhile would miss that, so the next incarnation of the actor goes on
//! with the same log.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures::future::join_all;
use hivekeep_store::{Journal, StreamId};

use super::{Log, LogError, Sourced};

/// The open logs of a kind.
pub struct LogSet<S: Sourced> {
    journal: Journal,
    open: Mutex<HashMap<StreamId, Log<S>>>,
}

impl<S: Sourced> LogSet<S> {
    /// Makes a set without open logs.
    pub fn new(journal: Journal) -> Self {
        Self { journal, open: Mutex::default() }
    }

    /// The log of a new entity, of which nothing is in the journal.
    pub fn begin(&self, stream: StreamId) -> Log<S> {
        self.keep(Log::of(self.journal.clone(), stream, None))
    }

    /// The log of an entity, with everything that was decided on the disk: the one that is open, or
    /// one that is read from the journal.
    ///
    /// # Errors
    /// When it cannot be read, or too much waits to be written.
    pub async fn open(&self, stream: StreamId) -> Result<Log<S>, LogError> {
        let open = self.held().get(&stream).cloned();
        if let Some(log) = open {
            match log.settled().await {
                Ok(()) => return Ok(log),
                Err(error) if log.ended().is_none() => return Err(error),
                // The log ended and is read anew.
                Err(_ended) => {}
            }
        }
        Ok(self.keep(Log::open(self.journal.clone(), stream).await?))
    }

    /// Waits until everything that was decided on any of them is durable, as far as it will be.
    pub async fn settled(&self) {
        let open: Vec<_> = self.held().values().cloned().collect();
        // A log that ended is read anew by whoever opens it.
        drop(join_all(open.iter().map(Log::settled)).await);
    }

    /// Removes all records of an entity, readable or not, as [`Log::forget`] does.
    ///
    /// # Errors
    /// When they could not be removed.
    pub async fn forget(&self, stream: &StreamId) -> Result<(), LogError> {
        let open = self.held().remove(stream);
        let log = open.filter(|log| log.ended().is_none());
        log.unwrap_or_else(|| Log::of(self.journal.clone(), stream.clone(), None)).forget().await
    }

    fn keep(&self, log: Log<S>) -> Log<S> {
        self.held().insert(log.0.stream.clone(), log.clone());
        log
    }

    fn held(&self) -> MutexGuard<'_, HashMap<StreamId, Log<S>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
