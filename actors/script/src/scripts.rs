//! Script libraries of all users: a service over one log for each script, its event-sourced state in the stream
//! `script/ID`, and judgments on a user's library: which script is meant, which names are free, what makes room.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{Layer, ScriptId, SessionId, ToolError, User, lock};
use hivekeep_ports::{ScriptLibrary, ScriptProgram, SessionQuotas};
use hivekeep_runtime::{
    Daemon,
    log::{self, Log, Sourced},
};
use hivekeep_store::Journal;
use serde::{Deserialize, Serialize};

use crate::{HELD, Options, codes};

/// Libraries of all users.
pub(crate) struct Scripts {
    pub(crate) options: Options,
    pub(crate) journal: Journal,
    pub(crate) sessions: Arc<dyn SessionQuotas>,
    /// Locked while something is decided, so that names and sizes are judged on what was decided
    /// before; never across an await.
    logs: Mutex<Logs>,
}

impl ScriptLibrary for Scripts {
    fn program(
        &self,
        session: SessionId,
        id_or_name: &str,
        version: Option<u64>,
    ) -> Answer<ScriptProgram> {
        let owner = self.sessions.caller(session)?;
        let (id, _, version, asked) = self.find(owner, id_or_name, version)?;
        Ok(ScriptProgram { id, version, code: asked.code.clone() })
    }
}

impl Scripts {
    pub(crate) async fn open(daemon: &Daemon, options: Options) -> Result<Self, ToolError> {
        let (journal, sessions) = (daemon.journal.clone(), daemon.sessions.clone());
        let mut logs = Logs::new();
        for (stream, loaded) in log::read_all::<Script>(&journal).await?.loaded {
            let id = stream.id().parse().map_err(|error| {
                ToolError::new(Layer::Actor, codes::STATE_UNREADABLE, format!("{stream}: {error}"))
            })?;
            logs.insert(id, Log::of(journal.clone(), stream, Some(loaded)));
        }
        Ok(Self { options, journal, sessions, logs: Mutex::new(logs) })
    }

    pub(crate) fn logs(&self) -> MutexGuard<'_, Logs> {
        lock(&self.logs)
    }

    pub(crate) fn most_scripts(&self, owner: User) -> usize {
        let allowed = self.sessions.allowance(owner, HELD).map(usize::try_from);
        let allowed = allowed.map_or(usize::MAX, |allowed| allowed.unwrap_or(usize::MAX));
        allowed.min(self.options.max_scripts)
    }

    /// Script of a user, and the number and content of one of its versions.
    pub(crate) fn find(
        &self,
        owner: User,
        id_or_name: &str,
        version: Option<u64>,
    ) -> Answer<(ScriptId, Script, u64, Arc<Version>)> {
        let (id, script) = {
            let logs = self.logs();
            let by_id = id_or_name.parse().ok().and_then(|id| Some((id, logs.get(&id)?.state()?)));
            let own = by_id.filter(|(_, script)| script.owner == owner);
            let by_name = || {
                live(&logs, owner, id_or_name)
                    .ok()
                    .and_then(|(id, log, _)| Some((id, log.state()?)))
            };
            own.or_else(by_name).ok_or_else(|| not_found(id_or_name))?
        };
        let newest = script.versions.len() as u64;
        let number = version.unwrap_or(newest);
        let index = number.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let Some(asked) = index.and_then(|index| script.versions.get(index)).cloned() else {
            let message = format!("`{id_or_name}` has the versions 1 to {newest}, not {number}");
            return Err(ToolError::new(Layer::Actor, codes::SCRIPT_VERSION_NOT_FOUND, message)
                .next("leave the version out for the newest"));
        };
        Ok((id, script, number, asked))
    }
}

/// Size that a version counts for at least, so that many small ones are bounded too.
const LEAST_BYTES: usize = 4 * 1024;

/// Version of a script. Never changes; shared by the states that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) code: String,
    pub(crate) at: DateTime<Utc>,
}

impl Version {
    /// Size in bytes that counts against the library.
    pub(crate) fn bytes(&self) -> usize {
        let description = self.description.as_ref().map_or(0, String::len);
        (self.code.len() + description).max(LEAST_BYTES)
    }
}

/// Script with all its versions.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) owner: User,
    /// In order; never empty.
    pub(crate) versions: Vec<Arc<Version>>,
    pub(crate) deleted_at: Option<DateTime<Utc>>,
}

impl Script {
    /// Newest version.
    pub(crate) fn newest(&self) -> &Version {
        self.versions.last().expect("a script begins with a version")
    }

    /// True if it is `owner`'s and not deleted.
    pub(crate) fn is_live(&self, owner: User) -> bool {
        self.owner == owner && self.deleted_at.is_none()
    }

    /// Size in bytes of all versions.
    pub(crate) fn bytes(&self) -> usize {
        self.versions.iter().map(|version| version.bytes()).sum()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    Saved { owner: User, version: Arc<Version> },
    Updated { version: Arc<Version> },
    Deleted { at: DateTime<Utc> },
}

impl Sourced for Script {
    const KIND: &'static str = "script";
    /// A version's code may take six times its size as JSON.
    const PIECE_BYTES: Option<usize> = Some(512 * 1024);
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Saved { owner, version } => {
                Ok(Self { owner, versions: vec![version], deleted_at: None })
            }
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Updated { version } if self.deleted_at.is_none() => self.versions.push(version),
            Record::Deleted { at } if self.deleted_at.is_none() => self.deleted_at = Some(at),
            other => return Err(other),
        }
        Ok(())
    }
}

pub(crate) type Logs = BTreeMap<ScriptId, Log<Script>>;
pub(crate) type Answer<T> = Result<T, ToolError>;

/// Scripts with everything decided.
pub(crate) fn decided(logs: &Logs) -> impl Iterator<Item = (ScriptId, Script)> {
    logs.iter().filter_map(|(id, log)| Some((*id, log.views(|decided, _| decided.cloned())?)))
}

/// A user's script that is not deleted, by id or name.
pub(crate) fn live(
    logs: &Logs,
    owner: User,
    asked: &str,
) -> Answer<(ScriptId, Log<Script>, Script)> {
    let id = asked.parse().ok();
    let is = |found: ScriptId, script: &Script| {
        script.is_live(owner) && (Some(found) == id || script.newest().name == asked)
    };
    let found = decided(logs).find(|(found, script)| is(*found, script));
    let (id, script) = found.ok_or_else(|| not_found(asked))?;
    let log = logs.get(&id).cloned().ok_or_else(|| not_found(asked))?;
    Ok((id, log, script))
}

pub(crate) fn name_is_free(logs: &Logs, owner: User, name: &str, but: ScriptId) -> Answer<()> {
    let taken = decided(logs)
        .any(|(id, script)| id != but && script.is_live(owner) && script.newest().name == name);
    if taken {
        let message = format!("you have a script `{name}` already");
        return Err(ToolError::new(Layer::Actor, codes::NAME_TAKEN, message)
            .next("change it with aegis.script.update, or choose another name"));
    }
    Ok(())
}

/// Names as many of a user's deleted scripts, oldest first, as `more` bytes need to be removed.
pub(crate) fn make_room(
    logs: &Logs,
    owner: User,
    more: usize,
    most: usize,
) -> Answer<Vec<ScriptId>> {
    let own: Vec<_> = decided(logs).filter(|(_, script)| script.owner == owner).collect();
    let used: usize = own.iter().map(|(_, script)| script.bytes()).sum();
    let mut over = (used + more).saturating_sub(most);
    let mut deleted: Vec<_> = own
        .iter()
        .filter_map(|(id, script)| Some((script.deleted_at?, *id, script.bytes())))
        .collect();
    deleted.sort_unstable();
    let mut purged = Vec::new();
    for (_, id, bytes) in deleted {
        if over == 0 {
            break;
        }
        over = over.saturating_sub(bytes);
        purged.push(id);
    }
    if over > 0 {
        return Err(full(format!("your library would hold {} of {most} bytes", used + more)));
    }
    Ok(purged)
}

pub(crate) fn full(message: String) -> ToolError {
    ToolError::new(Layer::Quota, codes::SCRIPT_LIBRARY_FULL, message)
        .next("delete a script with aegis.script.delete")
}

pub(crate) fn not_found(asked: &str) -> ToolError {
    ToolError::not_found(Layer::Resolve, codes::SCRIPT_NOT_FOUND, "script", asked)
        .next("aegis.script.list shows yours")
}
