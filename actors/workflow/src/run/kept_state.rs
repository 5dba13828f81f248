//! State that DAGs keep from run to run: values by namespace and key, of each user, in a log of the user's own.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{Layer, ToolError, User, lock};
use hivekeep_runtime::log::{Decision, Log, LogError, Sourced, stream};
use hivekeep_store::Journal;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use super::failure::failed;
use crate::codes;

/// Largest value as JSON.
const MAX_VALUE_BYTES: usize = 64 * 1024;
/// Bytes of the keys and values of a user, and their number.
const MAX_BYTES: usize = 4 * 1024 * 1024;
const MAX_KEYS: usize = 10_000;
/// Longest key, and longest namespace.
const MAX_NAME_BYTES: usize = 512;
/// Entries of a list where a step names no bound.
const LISTED: usize = 100;

/// Value with the version that it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct KeptValue {
    value: Arc<Value>,
    version: u64,
    /// Try of a step that put it.
    by: String,
    at: DateTime<Utc>,
    bytes: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum StateRecord {
    Set { namespace: String, key: String, value: Arc<Value>, by: String, at: DateTime<Utc> },
    Deleted { namespace: String, key: String, at: DateTime<Utc> },
}

/// Values of a user.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct UserState {
    namespaces: BTreeMap<String, Arc<BTreeMap<String, KeptValue>>>,
    keys: usize,
    bytes: usize,
}

impl UserState {
    fn get(&self, namespace: &str, key: &str) -> Option<&KeptValue> {
        self.namespaces.get(namespace)?.get(key)
    }

    fn take(&mut self, namespace: &str, key: &str) -> Option<KeptValue> {
        let keys = Arc::make_mut(self.namespaces.get_mut(namespace)?);
        let taken = keys.remove(key)?;
        if keys.is_empty() {
            self.namespaces.remove(namespace);
        }
        self.keys -= 1;
        self.bytes = self.bytes.saturating_sub(taken.bytes + key.len());
        Some(taken)
    }
}

impl Sourced for UserState {
    const KIND: &'static str = "dag_state";
    const FOLD_EVERY: usize = 256;
    const PIECE_BYTES: Option<usize> = Some(256 * 1024);
    type Record = StateRecord;

    fn begin(record: StateRecord) -> Result<Self, StateRecord> {
        let mut state = Self::default();
        state.apply(record)?;
        Ok(state)
    }

    fn apply(&mut self, record: StateRecord) -> Result<(), StateRecord> {
        match record {
            StateRecord::Set { namespace, key, value, by, at } => {
                let version = self.take(&namespace, &key).map_or(0, |kept| kept.version) + 1;
                let bytes = value.to_string().len();
                self.keys += 1;
                self.bytes += bytes + key.len();
                let keys = Arc::make_mut(self.namespaces.entry(namespace).or_default());
                keys.insert(key, KeptValue { value, version, by, at, bytes });
            }
            StateRecord::Deleted { namespace, key, .. } => drop(self.take(&namespace, &key)),
        }
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}

/// Step that reads or writes state.
pub(super) struct StateCall<'c> {
    /// Action without `state.`.
    pub(super) operation: &'c str,
    pub(super) with: &'c Map<String, Value>,
    /// Namespace of its `scope`, where the step names none.
    pub(super) namespace: String,
    /// Try of the step: what it has put is not put again.
    pub(super) by: String,
}

/// See the module.
pub(crate) struct KeptStates {
    journal: Journal,
    users: Mutex<HashMap<User, Arc<OnceCell<Log<UserState>>>>>,
}

impl KeptStates {
    pub(super) fn new(journal: Journal) -> Self {
        Self { journal, users: Mutex::default() }
    }

    async fn log(&self, user: User) -> Result<Log<UserState>, ToolError> {
        let cell = lock(&self.users).entry(user).or_default().clone();
        let opened = cell.get_or_try_init(async || {
            let name = user.to_string().replace(':', ".");
            let stream = stream::<UserState>(name);
            let stream = stream.map_err(|error| ToolError::internal(error.to_string()))?;
            Log::open(self.journal.clone(), stream).await.map_err(ToolError::from)
        });
        opened.await.cloned()
    }

    /// Does what a step asks for, and answers when that is durable.
    ///
    /// # Errors
    /// `step_failed` for a key that is missing, has another version or is no key, and beyond a bound; `journal_failed`.
    pub(super) async fn call(&self, user: User, call: &StateCall<'_>) -> Result<Value, ToolError> {
        let text = |name: &str| call.with.get(name).and_then(Value::as_str).unwrap_or_default();
        let namespace = match text("namespace") {
            "" => call.namespace.as_str(),
            named => named,
        };
        let key = text("key");
        for (name, what) in [(namespace, "namespace"), (key, "key")] {
            let is_listed = call.operation == "list" && what == "key";
            if name.len() > MAX_NAME_BYTES || name.is_empty() && !is_listed {
                let message = format!("`{what}` has 1 to {MAX_NAME_BYTES} bytes: {name:.80}");
                return Err(failed(message));
            }
        }
        let log = self.log(user).await?;
        let scope = Some(text("scope")).filter(|it| !it.is_empty()).unwrap_or("dag");
        let mut told =
            json!({ "operation": call.operation, "scope": scope, "namespace": namespace });
        if call.operation == "list" {
            told["prefix"] = text("prefix").into();
        } else {
            told["key"] = key.into();
        }
        let none = UserState::default();
        let mut more = Map::new();
        let decide = |state: Option<&UserState>| {
            let state = state.unwrap_or(&none);
            let (found, record) = decided(state, call, namespace, key)?;
            more = found;
            Ok::<_, StateRefusal>(record.map_or_else(Decision::nothing, Decision::record))
        };
        let written = log.decide(decide).map_err(StateRefusal::told)?;
        written.await?;
        if let Some(told) = told.as_object_mut() {
            told.extend(more);
        }
        Ok(told)
    }
}

/// Why a step's call is not done.
enum StateRefusal {
    Said(String),
    Log(LogError),
}

impl From<LogError> for StateRefusal {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl StateRefusal {
    fn told(self) -> ToolError {
        match self {
            Self::Said(what) => ToolError::new(Layer::Actor, codes::STEP_FAILED, what)
                .next("look at the key with `state.get`, and mend the step"),
            Self::Log(error) => error.into(),
        }
    }
}

type StateEffect = (Map<String, Value>, Option<StateRecord>);

/// Outcome of a call on the values of a user, and the record of what it changes.
fn decided(
    state: &UserState,
    call: &StateCall<'_>,
    namespace: &str,
    key: &str,
) -> Result<StateEffect, StateRefusal> {
    let found = state.get(namespace, key);
    let is = |name: &str| {
        let value = call.with.get(name);
        value.is_some_and(|it| *it == true || *it == "true")
    };
    let shown = |kept: &KeptValue| {
        let mut shown = Map::new();
        shown.insert("version".to_owned(), kept.version.into());
        shown.insert("hash".to_owned(), hash(&kept.value).into());
        shown
    };
    let mut told = Map::new();
    match call.operation {
        "get" => {
            told.insert("found".to_owned(), found.is_some().into());
            match (found, call.with.get("default")) {
                (Some(kept), _) => {
                    told.extend(shown(kept));
                    told.insert("value".to_owned(), (*kept.value).clone());
                }
                (None, _) if is("required") => {
                    return Err(StateRefusal::Said(format!("there is no key `{key:.80}`")));
                }
                (None, default) => {
                    told.extend(default.map(|it| ("value".to_owned(), it.clone())));
                }
            }
            Ok((told, None))
        }
        "list" => Ok((listed(state, call.with, namespace, is("include_values")), None)),
        "delete" => {
            told.insert("deleted".to_owned(), found.is_some().into());
            let (namespace, key) = (namespace.to_owned(), key.to_owned());
            let record = StateRecord::Deleted { namespace, key, at: Utc::now() };
            Ok((told, found.map(|_| record)))
        }
        "set" | "diff" => put(state, call, (namespace, key), is("update")),
        other => Err(StateRefusal::Said(format!("the action `state.{other:.80}` is unknown"))),
    }
}

/// Puts a value, or says how it differs from the one that is kept.
fn put(
    state: &UserState,
    call: &StateCall<'_>,
    (namespace, key): (&str, &str),
    updates: bool,
) -> Result<StateEffect, StateRefusal> {
    let found = state.get(namespace, key);
    let given = call.with.get("value").cloned().unwrap_or_default();
    let mut told = Map::new();
    let is_diff = call.operation == "diff";
    let before = found.filter(|kept| kept.by != call.by);
    let changed = found.is_none_or(|kept| *kept.value != given) || before.is_none();
    let writes = !is_diff || changed && updates;
    let again = found.is_some() && before.is_none();
    let mut record = None;
    let mut version = found.map_or(0, |kept| kept.version);
    if writes && !again {
        allowed(state, call, (namespace, key), &given)?;
        version += 1;
        record = Some(StateRecord::Set {
            namespace: namespace.to_owned(),
            key: key.to_owned(),
            value: Arc::new(given.clone()),
            by: call.by.clone(),
            at: Utc::now(),
        });
    }
    if is_diff {
        told.insert("changed".to_owned(), changed.into());
        told.insert("foundPrevious".to_owned(), before.is_some().into());
        told.insert("current".to_owned(), given.clone());
        told.extend(before.map(|kept| ("previous".to_owned(), (*kept.value).clone())));
    } else {
        told.insert("created".to_owned(), (version == 1).into());
    }
    if version > 0 {
        let stored = if writes { &given } else { found.map_or(&given, |kept| &*kept.value) };
        told.insert("version".to_owned(), version.into());
        told.insert("hash".to_owned(), hash(stored).into());
    }
    Ok((told, record))
}

/// Checks that a value may be put.
fn allowed(
    state: &UserState,
    call: &StateCall<'_>,
    (namespace, key): (&str, &str),
    value: &Value,
) -> Result<(), StateRefusal> {
    let refuse = |what: String| Err(StateRefusal::Said(what));
    let found = state.get(namespace, key);
    let version = found.map_or(0, |kept| kept.version);
    let expected = call.with.get("expected_version").filter(|it| !it.is_null());
    let expected = expected.map(|it| hivekeep_plan::resolve::value_text(it).trim().parse::<u64>());
    let bytes = value.to_string().len();
    let total = state.bytes + bytes + key.len();
    match expected {
        Some(Ok(expected)) if expected != version => {
            return refuse(format!("`{key:.80}` has the version {version}, not {expected}"));
        }
        Some(Err(_)) => return refuse("`expected_version` is not a whole number".to_owned()),
        _ => {}
    }
    match () {
        () if found.is_some() && call.with.get("create_only").is_some_and(|it| *it == true) => {
            refuse(format!("there is a key `{key:.80}`, with the version {version}"))
        }
        () if bytes > MAX_VALUE_BYTES => {
            refuse(format!("the value has {bytes} bytes, {MAX_VALUE_BYTES} are allowed"))
        }
        () if total > MAX_BYTES => refuse(format!("your values have {MAX_BYTES} bytes at most")),
        () if state.keys >= MAX_KEYS && found.is_none() => {
            refuse(format!("you have {MAX_KEYS} keys, as many as may be"))
        }
        () => Ok(()),
    }
}

fn listed(
    state: &UserState,
    with: &Map<String, Value>,
    namespace: &str,
    values: bool,
) -> Map<String, Value> {
    let prefix = with.get("prefix").and_then(Value::as_str).unwrap_or_default();
    let limit = with.get("limit").and_then(Value::as_u64);
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
    let keys = state.namespaces.get(namespace).into_iter().flat_map(|keys| keys.iter());
    let keys = keys.filter(|(key, _)| key.starts_with(prefix)).take(limit.unwrap_or(LISTED));
    let entry = |(key, kept): (&String, &KeptValue)| {
        let mut entry = json!({
            "key": key, "version": kept.version, "hash": hash(&kept.value), "updated_at": kept.at,
        });
        if values {
            entry["value"] = (*kept.value).clone();
        }
        entry
    };
    let entries: Vec<Value> = keys.map(entry).collect();
    Map::from_iter([("entries".to_owned(), entries.into())])
}

/// Digest of a value, the same for the same value.
fn hash(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
