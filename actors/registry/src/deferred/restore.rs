//! Recovery of deferred calls at a start, and their garbage collection, then and before each new one.
//!
//! Calls that were running are lost, and their sessions hear of it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::Utc;
use futures::future::try_join_all;
use hivekeep_kernel::{DeferredId, Effect, Layer, SessionId, ToolError, lock};
use hivekeep_runtime::log::{self, Decision, Loaded, Log, LogError};
use hivekeep_store::{Journal, StreamId};
use tokio_util::sync::CancellationToken;

use super::{DeferredCalls, DeferredRecord, HeldCall, Inner, Recorded, held::DeferredEnd, stream};
use crate::{Catalogue, DeferredOptions, SessionsHandle, codes};

impl DeferredCalls {
    /// Opens the calls of the journal. `closing` fires when the daemon begins to stop.
    ///
    /// # Errors
    /// When their records cannot be read or written.
    pub async fn open(
        options: DeferredOptions,
        journal: Journal,
        sessions: SessionsHandle,
        catalogue: &Catalogue,
        closing: CancellationToken,
    ) -> Result<Self, LogError> {
        let streams = log::read_all::<Recorded>(&journal).await?;
        let failed = |stream: &StreamId| {
            let stream = stream.clone();
            move |source| LogError::Journal { stream, source }
        };
        for stream in &streams.stray {
            journal.forget(stream).await.map_err(failed(stream))?;
        }
        let ended = streams.loaded.into_iter().map(|(stream, loaded)| {
            let journal = journal.clone();
            async move { end(journal, stream, loaded, catalogue).await }
        });
        let calls = try_join_all(ended).await?.into_iter().flatten();
        let calls: HashMap<_, _> = calls.map(|call| (call.id, Arc::new(call))).collect();
        let inner = Inner { options, journal, sessions, closing, calls: calls.into() };
        let calls = Self(Arc::new(inner));
        calls.sweep();
        Ok(calls)
    }
}

/// A call with its end on the disk; none of a stream with another name than an id.
async fn end(
    journal: Journal,
    stream: StreamId,
    loaded: Loaded<Recorded>,
    catalogue: &Catalogue,
) -> Result<Option<HeldCall>, LogError> {
    let Ok(id) = stream.id().parse::<DeferredId>() else { return Ok(None) };
    let Recorded { session, user, tool, limit_secs, begun_at, ended_at, .. } = loaded.state.clone();
    let at = match ended_at {
        Some(at) => at,
        None => {
            let (at, error) = (Utc::now(), lost(&tool, catalogue));
            let record = DeferredRecord::Ended { end: DeferredEnd::Lost { error }, at };
            let log = Log::of(journal, stream, Some(loaded));
            log.decide::<LogError>(|_| Ok(Decision::record(record)))?.await?;
            at
        }
    };
    let limit = Duration::from_secs(limit_secs);
    let call = HeldCall::new(id, session, user, tool, limit, begun_at);
    call.end(at);
    Ok(Some(call))
}

/// The error for a call that was running when the daemon ended.
fn lost(tool: &str, catalogue: &Catalogue) -> ToolError {
    let spec = catalogue.find(tool).map(|entry| entry.spec);
    let reads = spec.is_some_and(|spec| spec.effect == Effect::Read);
    let told_by = spec.and_then(|spec| spec.told_by);
    let known = match reads {
        true => "nothing was changed",
        false => "whether it took effect is unknown",
    };
    let message = format!("the daemon restarted while `{tool}` was running; {known}");
    let step = match told_by {
        Some(told_by) => format!("look with `{told_by}`: what it began may go on"),
        None if reads => "repeat the call".to_owned(),
        None => "look what took effect, then repeat the call if it is still wanted".to_owned(),
    };
    let error = ToolError::new(Layer::Door, codes::DAEMON_RESTARTED, message)
        .next(step)
        .retryable()
        .detail("outcome", if reads { "nothing_done" } else { "unknown" });
    match told_by {
        Some(told_by) => error.detail("told_by", told_by),
        None => error,
    }
}

impl DeferredCalls {
    /// Forgets what has expired, and what nobody can ask for any more.
    pub(super) fn sweep(&self) {
        let now = Utc::now();
        let gone = |call: &HeldCall| {
            call.is_over() && (call.expired(&self.0.options, now) || self.is_over(call.session))
        };
        let mut calls = lock(&self.0.calls);
        let ids: Vec<_> = calls.values().filter(|call| gone(call)).map(|call| call.id).collect();
        for id in &ids {
            calls.remove(id);
        }
        drop(calls);
        for id in ids {
            self.forget(id);
        }
    }

    /// Removes what the journal has of a call, some time soon. What is left by a crash is found at
    /// the next start.
    pub(super) fn forget(&self, id: DeferredId) {
        let journal = self.0.journal.clone();
        tokio::spawn(async move {
            if let Err(error) = journal.forget(&stream(id)).await {
                tracing::warn!(%error, %id, "a deferred call stays until the next start");
            }
        });
    }

    fn is_over(&self, session: SessionId) -> bool {
        self.0.sessions.standing_of(session).is_err()
    }
}
