//! Idempotency keys: a request with a key is carried out once, and answered with its first outcome
//! again for a day.
//!
//! ```text
//! begun, durable ─▶ the call, which outlives its client ─▶ ended, durable ─▶ answered, and again
//!       │                 └─ refused before anything was done: forgotten, the key is free
//!       └─ the daemon ended: its outcome is unknown, and it is not made again
//! ```
//! Each key has a stream of its own, `idempotency/<id>`, that is forgotten with it.

mod kept;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    http::{HeaderMap, HeaderName},
    response::Response,
};
use chrono::{TimeDelta, Utc};
use hivekeep_door_server::codes;
use hivekeep_kernel::{CallId, Layer, ReceiptPad, ToolError, User, lock};
use hivekeep_runtime::log::{self, Decision, Log, LogError};
use hivekeep_store::Journal;
use tokio_util::sync::CancellationToken;

use super::{error::ApiError, published::ToolReason};
use kept::{KeyState, Record};

pub(super) use kept::Begun;
pub(super) use kept::{KeptOutcome, KeptRun};

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
/// Characters of a key.
const KEY_CHARS: usize = 200;
/// Time that an outcome is kept.
const KEPT: TimeDelta = TimeDelta::hours(24);
/// Keys of one user, and of all. Beyond it the oldest that have ended are forgotten.
const MOST: [usize; 2] = [512, 2048];
/// Bytes of an answer that is kept whole.
pub(super) const BODY_BYTES: usize = 64 * 1024;
const SWEEP: Duration = Duration::from_secs(60);

/// The key of a request, if it has one.
pub(super) fn key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut all = headers.get_all(HEADER).iter();
    let (Some(value), second) = (all.next(), all.next()) else { return Ok(None) };
    let text = value.to_str().ok().map(str::trim).filter(|_| second.is_none());
    let good = |text: &&str| !text.is_empty() && text.len() <= KEY_CHARS;
    match text.filter(good) {
        Some(text) => Ok(Some(text.to_owned())),
        None => {
            let why = format!("`Idempotency-Key` should be one of 1 to {KEY_CHARS} characters");
            Err(ApiError::invalid(ToolReason::SchemaInvalid, why))
        }
    }
}

/// A key, and the outcome of its request.
struct KeptKey {
    begun: Begun,
    log: Log<KeyState>,
    /// True when no task works on the key any more.
    settled: AtomicBool,
}

impl KeptKey {
    fn outcome(&self) -> Option<KeptOutcome> {
        self.log.view(|state| state.and_then(|state| state.outcome.clone()))
    }

    fn is_settled(&self) -> bool {
        self.settled.load(SeqCst)
    }

    async fn write(&self, record: Record) -> Result<(), ToolError> {
        let durable = self.log.decide(|_| Ok::<_, LogError>(Decision::record(record)));
        durable.map_err(ToolError::from)?.await.map_err(ToolError::from)
    }
}

type Keys = HashMap<(User, String), Arc<KeptKey>>;

/// The keys of all users. Cheap to clone.
#[derive(Clone)]
pub(super) struct IdempotencyKeys {
    journal: Journal,
    keys: Arc<Mutex<Keys>>,
}

impl IdempotencyKeys {
    /// Reads the keys from the journal. A request that was not answered before has an unknown outcome.
    pub(super) async fn open(journal: &Journal) -> Result<Self, LogError> {
        let mut keys = Keys::new();
        for (stream, loaded) in log::read_all::<KeyState>(journal).await?.loaded {
            let begun = loaded.state.begun.clone();
            let log = Log::of(journal.clone(), stream, Some(loaded));
            let of = (begun.user, begun.key.clone());
            keys.insert(of, Arc::new(KeptKey { begun, log, settled: true.into() }));
        }
        Ok(Self { journal: journal.clone(), keys: Arc::new(Mutex::new(keys)) })
    }

    /// Carries a request out, or answers with the outcome of the first one with its key.
    pub(super) async fn once(
        &self,
        begun: Begun,
        run: impl Future<Output = KeptRun> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let (kept, first) = self.find_or_begin(begun.clone())?;
        if !first {
            return again(&kept, &begun);
        }
        // The work goes on when the client leaves: the key is for a client that comes back.
        let work = tokio::spawn(self.clone().work(kept, run));
        work.await.map_err(|error| ToolError::internal(error.to_string()))?
    }

    /// Makes the call between two records, the second of which is durable before it is answered.
    async fn work(
        self,
        kept: Arc<KeptKey>,
        run: impl Future<Output = KeptRun>,
    ) -> Result<Response, ApiError> {
        let settling = Settling(kept.clone());
        if let Err(error) = kept.write(Record::Begun(kept.begun.clone())).await {
            self.lock().remove(&(kept.begun.user, kept.begun.key.clone()));
            return Err(error.into());
        }
        hivekeep_kernel::fault_point!("http_api.begun");
        let KeptRun { answer, outcome, receipt } = run.await;
        hivekeep_kernel::fault_point!("http_api.made");
        match outcome {
            Some(outcome) => kept.write(Record::Ended { outcome, at: Utc::now() }).await?,
            // The key is free for another try.
            None => {
                self.lock().remove(&(kept.begun.user, kept.begun.key.clone()));
                forget(vec![kept.clone()]);
            }
        }
        drop(settling);
        receipt.into_iter().for_each(ReceiptPad::sign);
        Ok(answer)
    }

    fn find_or_begin(&self, begun: Begun) -> Result<(Arc<KeptKey>, bool), ApiError> {
        let mut keys = self.lock();
        let of = (begun.user, begun.key.clone());
        if let Some(kept) = keys.get(&of) {
            return Ok((kept.clone(), false));
        }
        let mut gone = Vec::new();
        let own = |of: &(User, String)| of.0 == begun.user;
        for (most, counts) in [(MOST[0], true), (MOST[1], false)] {
            while keys.keys().filter(|of| !counts || own(of)).count() >= most {
                let ended = keys.iter().filter(|(of, it)| (!counts || own(of)) && it.is_settled());
                let oldest = ended.min_by_key(|(_, it)| it.begun.at).map(|(of, _)| of.clone());
                gone.push(oldest.and_then(|of| keys.remove(&of)).ok_or_else(full)?);
            }
        }
        let stream = log::stream::<KeyState>(CallId::new()).expect("an id is letters and digits");
        let log = Log::of(self.journal.clone(), stream, None);
        let kept = Arc::new(KeptKey { begun, log, settled: false.into() });
        keys.insert(of, kept.clone());
        drop(keys);
        forget(gone);
        Ok((kept, true))
    }

    /// Forgets keys after their time, until the door closes.
    pub(super) fn sweep_until(&self, end: CancellationToken) {
        let keys = self.clone();
        tokio::spawn(async move {
            while end.run_until_cancelled(tokio::time::sleep(SWEEP)).await.is_some() {
                let now = Utc::now();
                let over = |kept: &KeptKey| kept.is_settled() && now - kept.begun.at >= KEPT;
                let gone = keys.lock().extract_if(|_, kept| over(kept)).map(|(_, it)| it).collect();
                forget(gone);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        // Nothing between lock and unlock panics; were it so, the map still holds.
        lock(&self.keys)
    }
}

/// Marks a key as settled when this is dropped.
struct Settling(Arc<KeptKey>);

impl Drop for Settling {
    fn drop(&mut self) {
        self.0.settled.store(true, SeqCst);
    }
}

fn forget(gone: Vec<Arc<KeptKey>>) {
    for kept in gone {
        tokio::spawn(async move {
            if let Err(error) = kept.log.forget().await {
                tracing::warn!(%error, "a key was not forgotten");
            }
        });
    }
}

/// The answer to a request whose key was used before.
fn again(kept: &KeptKey, begun: &Begun) -> Result<Response, ApiError> {
    let conflict = |code, why: &str, next: &str| {
        ToolError::new(Layer::Door, code, why).next(next).detail("idempotency_key", &*begun.key)
    };
    let answer = |error| Err(ApiError::conflict(error).about(&begun.tool));
    if kept.begun.request != begun.request || kept.begun.tool != begun.tool {
        let error = conflict(
            codes::IDEMPOTENCY_KEY_REUSED,
            "the key was used for another request",
            "choose another key for each call",
        );
        return answer(error);
    }
    if let Some(outcome) = kept.outcome() {
        return outcome.again(&begun.tool);
    }
    if !kept.is_settled() {
        let error = conflict(
            codes::IDEMPOTENCY_KEY_IN_USE,
            "the first request with the key is still running",
            "wait for it and ask again",
        );
        return answer(error.retry_after(Duration::from_secs(1)));
    }
    let error = conflict(
        codes::REQUEST_OUTCOME_UNKNOWN,
        "the daemon ended before the outcome of the first request was written; it is not made again",
        "look whether it took effect, then use another key",
    );
    answer(error.detail("outcome", "unknown"))
}

fn full() -> ApiError {
    let why = "too many requests with keys are running";
    let error = ToolError::new(Layer::Door, codes::TOO_MANY_REQUESTS, why);
    ApiError::from(error.retry_after(Duration::from_secs(1)))
}
