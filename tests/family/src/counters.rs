//! All counters, by name.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hivekeep_kernel::{CallCx, Layer, Service, ServiceActor, ToolError, ToolGroup};
use hivekeep_runtime::{
    Daemon,
    log::{self, Decision, Log},
};
use hivekeep_store::Journal;

use crate::{
    Options, codes,
    counter::{Counter, Record},
    tools::{self, Add, Create, Get, List, Listed, Remove, Removed, Value},
};

/// What the tools work with.
pub(crate) struct Counters {
    options: Options,
    journal: Journal,
    logs: Mutex<BTreeMap<String, Log<Counter>>>,
}

impl Service for Counters {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[&tools::FAMILY];
}

impl Counters {
    pub(crate) async fn open(daemon: &Daemon, options: Options) -> Result<Self, ToolError> {
        let journal = daemon.journal.clone();
        let all = log::read_all::<Counter>(&journal).await?.loaded.into_iter();
        let named = |(stream, loaded): (hivekeep_store::StreamId, _)| {
            (stream.id().to_owned(), Log::of(journal.clone(), stream, Some(loaded)))
        };
        let logs = Mutex::new(all.map(named).collect());
        Ok(Self { options, logs, journal })
    }

    /// The logs of counters that are there.
    fn logs(&self) -> MutexGuard<'_, BTreeMap<String, Log<Counter>>> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        // Removed, and nobody may have waited for it.
        logs.retain(|_, log| log.ended().is_none() || log.state().is_some());
        logs
    }

    /// The log of a counter of the caller's.
    fn own(&self, cx: &CallCx, name: &str) -> Result<Log<Counter>, ToolError> {
        let log = self.logs().get(name).cloned();
        let own = log.filter(|log| log.state().is_some_and(|state| state.owner == cx.session));
        own.ok_or_else(|| {
            ToolError::new(Layer::Resolve, codes::COUNTER_NOT_FOUND, format!("no counter `{name}`"))
                .next("counter_list shows yours")
        })
    }

    pub(crate) async fn create(self: Arc<Self>, cx: CallCx, input: Create) -> Answer<Value> {
        let stream = log::stream::<Counter>(&input.name)
            .map_err(|error| ToolError::invalid(error.to_string()))?;
        let written = {
            let mut logs = self.logs();
            if logs.len() >= self.options.max_counters {
                return Err(ToolError::new(
                    Layer::Actor,
                    codes::TOO_MANY_COUNTERS,
                    "remove one first",
                ));
            }
            if logs.contains_key(&input.name) {
                let message = format!("there is a counter `{}` already", input.name);
                return Err(ToolError::new(Layer::Actor, codes::NAME_TAKEN, message));
            }
            let log = Log::of(self.journal.clone(), stream, None);
            let created = Decision::record(Record::Created { owner: cx.session });
            let written = log.decide(|_| Ok::<_, ToolError>(created))?;
            logs.insert(input.name.clone(), log);
            written
        };
        written.await?;
        Ok(Value { name: input.name, value: 0 })
    }

    pub(crate) async fn add(self: Arc<Self>, cx: CallCx, input: Add) -> Answer<Value> {
        let log = self.own(&cx, &input.name)?;
        let mut value = 0;
        let written = log.decide(|counter| {
            let sum = counter.and_then(|counter| counter.value.checked_add(input.amount));
            value = sum.ok_or_else(|| ToolError::invalid("the sum is too large"))?;
            Ok::<_, ToolError>(Decision::record(Record::Added { amount: input.amount }))
        })?;
        written.await?;
        Ok(Value { name: input.name, value })
    }

    pub(crate) async fn get(self: Arc<Self>, cx: CallCx, input: Get) -> Answer<Value> {
        let value = self.own(&cx, &input.name)?.state().map_or(0, |counter| counter.value);
        Ok(Value { name: input.name, value })
    }

    pub(crate) async fn list(self: Arc<Self>, cx: CallCx, _: List) -> Answer<Listed> {
        let logs = self.logs();
        let own = logs
            .iter()
            .filter(|(_, log)| log.state().is_some_and(|counter| counter.owner == cx.session));
        let names = own.map(|(name, _)| name.clone()).collect();
        Ok(Listed { names })
    }

    pub(crate) async fn remove(self: Arc<Self>, cx: CallCx, input: Remove) -> Answer<Removed> {
        self.own(&cx, &input.name)?.forget().await?;
        Ok(Removed { name: input.name })
    }
}

type Answer<T> = Result<T, ToolError>;
