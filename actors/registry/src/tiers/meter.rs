//! Meter of a user's calls: takes from all limits of a call or from none. Its counts are event-sourced,
//! in the user's stream `usage/USER`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{Layer, ToolError, User, lock};
use hivekeep_runtime::log::{self, Decision, Loaded, Log, LogError, Sourced};
use hivekeep_store::{Journal, StreamId};
use serde::{Deserialize, Serialize};

use super::{CountedLimit, CountedWindow, LimitPeriod, QuotaTier};
use crate::codes;

/// Calls of one user, by the limits of its tier.
#[derive(Debug)]
pub(crate) struct CallMeter {
    tier: String,
    /// Held for a few comparisons, never across an await.
    limits: Mutex<Vec<CountedLimit>>,
    log: Log<CallCounts>,
}

/// Right to a call that is being made; dropped when its work has ended.
#[derive(Debug)]
pub(crate) struct CallPermit {
    meter: Arc<CallMeter>,
    /// Limits of calls in flight.
    at_once: Vec<usize>,
}

impl CallMeter {
    /// Meter of a user; `None` for a tier that limits no calls. `loaded` is what the journal has.
    pub(crate) fn new(
        user: User,
        (name, tier): (&str, &QuotaTier),
        journal: &Journal,
        loaded: Option<Loaded<CallCounts>>,
    ) -> Option<Arc<Self>> {
        if tier.calls.is_empty() {
            return None;
        }
        let written =
            |key: &str| loaded.as_ref().and_then(|loaded| loaded.state.0.get(key)).copied();
        let limits = tier
            .calls
            .iter()
            .map(|limit| CountedLimit::new(limit, written(&limit.key())))
            .collect();
        let log = Log::of(journal.clone(), stream(user), loaded);
        Some(Arc::new(Self { tier: name.to_owned(), limits: Mutex::new(limits), log }))
    }

    /// Takes a call of `tool`, once that is durable.
    ///
    /// # Errors
    /// `tier_limit_reached`, with the limit and when it opens; the journal's.
    pub(crate) async fn take(
        self: &Arc<Self>,
        tool: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<CallPermit>, ToolError> {
        let (permit, written) = {
            let mut limits = lock(&self.limits);
            let (mut counted, mut at_once) = (Vec::new(), Vec::new());
            for (index, limit) in limits.iter_mut().enumerate() {
                if !limit.counts(tool) {
                    continue;
                }
                if let Some(opens) = limit.blocked(now) {
                    return Err(self.reached(limit, opens, now));
                }
                match limit.per {
                    LimitPeriod::AtOnce => at_once.push(index),
                    _ => counted.push(index),
                }
            }
            let mut windows = BTreeMap::new();
            for &index in counted.iter().chain(&at_once) {
                let limit = &mut limits[index];
                windows.extend(limit.take().map(|window| (limit.key.clone(), window)));
            }
            let record = CountRecord::Leased { windows };
            let CountRecord::Leased { windows } = &record;
            // A call within what others wrote down waits for that to be on the disk, too.
            let decision = match (windows.is_empty(), counted.is_empty()) {
                (false, _) => Some(Decision::record(record)),
                (true, false) => self.unsettled().then(Decision::nothing),
                (true, true) => None,
            };
            let permit = CallPermit { meter: self.clone(), at_once };
            let written = decision.map(|decision| self.log.decide(|_| Ok::<_, LogError>(decision)));
            (permit, written)
        };
        if let Some(written) = written {
            written?.await?;
        }
        Ok((!permit.at_once.is_empty()).then_some(permit))
    }

    /// True while something that was decided is not on the disk.
    fn unsettled(&self) -> bool {
        self.log.views(|decided, durable| decided != durable)
    }

    fn reached(
        &self,
        limit: &CountedLimit,
        opens: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> ToolError {
        let CountedLimit { key, per, most, .. } = limit;
        let tier = &self.tier;
        let message = match per {
            LimitPeriod::AtOnce => format!("the tier `{tier}` allows {most} such calls at a time"),
            _ => format!("the tier `{tier}` allows {most} such calls a {}", per.word()),
        };
        let error = ToolError::new(Layer::Rate, codes::TIER_LIMIT_REACHED, message)
            .detail("tier", tier.as_str())
            .detail("limit", key.as_str())
            .detail("most", *most);
        match opens {
            Some(opens) => error
                .next("wait until `details.opens_at`, or ask the operator for another tier")
                .retry_after((opens - now).to_std().unwrap_or_default())
                .detail("opens_at", opens.to_rfc3339()),
            None => error.next("wait for one of the calls that run to end"),
        }
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut limits = lock(&self.meter.limits);
        for &index in &self.at_once {
            limits[index].end();
        }
    }
}

/// Newest window of each limit, by its key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallCounts(pub(super) BTreeMap<String, CountedWindow>);

/// Calls of some limits that are about to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum CountRecord {
    Leased { windows: BTreeMap<String, CountedWindow> },
}

impl Sourced for CallCounts {
    const KIND: &'static str = "usage";
    const FOLD_EVERY: usize = 256;
    type Record = CountRecord;

    fn begin(record: CountRecord) -> Result<Self, CountRecord> {
        let CountRecord::Leased { windows } = record;
        Ok(Self(windows))
    }

    fn apply(&mut self, record: CountRecord) -> Result<(), CountRecord> {
        let CountRecord::Leased { windows } = record;
        self.0.extend(windows);
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}

/// Stream of a user's counts.
pub(crate) fn stream(user: User) -> StreamId {
    let id = user.to_string().replace(':', "-");
    log::stream::<CallCounts>(id).expect("a user is letters, digits and `-`")
}
