//! Admission of a call among the deferred ones: it may take long, there is room, and it is written down.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{DeferredId, RateClass};
use hivekeep_runtime::log::{Decision, Log, LogError};
use serde_json::Value;

use super::{DeferredCalls, DeferredRecord, HeldCall, Recorded, stream};
use crate::{CallRequest, Catalogue, Dispatcher, dispatch::time_limit};

/// A call with a time limit above this may take long.
const LONG: Duration = Duration::from_secs(60);

impl DeferredCalls {
    /// Writes that a call begins, if it may take long and there is room for it.
    pub(super) async fn begin(
        &self,
        dispatcher: &Dispatcher,
        request: &mut CallRequest,
    ) -> Option<(Arc<HeldCall>, Log<Recorded>)> {
        let (tool, limit) = long(&dispatcher.catalogue().now(), request)?;
        let user = self.0.sessions.owner(request.session)?;
        self.sweep();
        let (id, at, session) = (DeferredId::new(), Utc::now(), request.session);
        let call = Arc::new(HeldCall::new(id, session, user, tool, limit, at));
        let mut place = self.take_place(&call)?;
        let log = Log::of(self.0.journal.clone(), stream(id), None);
        let limit_secs = limit.as_secs();
        let record = DeferredRecord::Begun { session, user, tool: tool.to_owned(), limit_secs, at };
        let written = match log.decide::<LogError>(|_| Ok(Decision::record(record))) {
            Ok(written) => written.await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::warn!(%error, "a call is not deferred");
            return None;
        }
        place.kept = true;
        Some((call, log))
    }

    /// Enters a call, where its session and its user have room for one more.
    fn take_place(&self, call: &Arc<HeldCall>) -> Option<Place> {
        let options = &self.0.options;
        let mut calls = self.calls();
        let of_session = calls.values().filter(|it| it.session == call.session).count();
        let of_user = calls.values().filter(|it| it.user == call.user).count();
        let fits = of_session < options.max_per_session && of_user < options.max_per_user;
        if !fits {
            return None;
        }
        calls.insert(call.id, call.clone());
        Some(Place { calls: self.clone(), id: call.id, kept: false })
    }
}

/// Place of a call that is being written down. Given back when that fails, or its client leaves
/// meanwhile.
struct Place {
    calls: DeferredCalls,
    id: DeferredId,
    kept: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.kept {
            self.calls.calls().remove(&self.id);
            self.calls.forget(self.id);
        }
    }
}

/// Name and time limit of a tool whose call may take long. Calls for files are many and quick.
fn long(catalogue: &Catalogue, request: &mut CallRequest) -> Option<(&'static str, Duration)> {
    let entry = catalogue.find(&request.tool)?;
    entry.respell(&mut request.args);
    let args = Value::Object(std::mem::take(&mut request.args));
    let limit = time_limit(entry, &args, request.timeout);
    let quick = entry.spec.class(&args) == RateClass::File || limit <= LONG;
    if let Value::Object(args) = args {
        request.args = args;
    }
    (!quick).then(|| (entry.name(), limit))
}
