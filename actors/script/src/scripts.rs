//! Script libraries of all users: a service over one log for each script.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::Utc;
use futures::future::BoxFuture;
use hivekeep_kernel::{
    CallCx, Layer, ScriptId, Service, ServiceActor, SessionId, ToolError, ToolGroup, User,
    ports::{ScriptLibrary, ScriptProgram, SessionQuotas},
};
use hivekeep_runtime::{
    Daemon,
    log::{self, Decision, Log, LogError},
};
use hivekeep_store::Journal;
use tokio::task::JoinHandle;

use crate::{
    HELD, Options, codes,
    library::{Answer, Logs, decided, full, live, make_room, name_is_free, not_found},
    script::{Record, Script, Version},
    tools::{
        self, Delete, Get, List, Listed, MAX_CODE_BYTES, MAX_DESCRIPTION_BYTES, MAX_NAME_BYTES,
        Save, ScriptRow, ScriptTag, ScriptText, Update, VersionRow,
    },
};

/// Libraries of all users.
pub(crate) struct Scripts {
    options: Options,
    journal: Journal,
    sessions: Arc<dyn SessionQuotas>,
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
        let owner = self.owner(session)?;
        let (id, _, version, asked) = self.find(owner, id_or_name, version)?;
        Ok(ScriptProgram { id, version, code: asked.code.clone() })
    }
}

impl Service for Scripts {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[&tools::FAMILY];
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

    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self, session: SessionId) -> Answer<User> {
        self.sessions.user(session).ok_or_else(|| {
            let message = format!("the session {session} is over");
            ToolError::new(Layer::Session, codes::SCRIPT_USER_UNKNOWN, message)
                .next("open a session and repeat the call")
        })
    }

    fn most_scripts(&self, owner: User) -> usize {
        let allowed = self.sessions.allowance(owner, HELD).map(usize::try_from);
        let allowed = allowed.map_or(usize::MAX, |allowed| allowed.unwrap_or(usize::MAX));
        allowed.min(self.options.max_scripts)
    }

    pub(crate) async fn save(self: Arc<Self>, cx: CallCx, input: Save) -> Answer<ScriptRow> {
        let owner = self.owner(cx.session)?;
        let version = version(input.name, input.code, input.description, tags(input.tags))?;
        let (id, version) = (ScriptId::new(), Arc::new(version));
        let (log, written) = {
            let mut logs = self.logs();
            let live = decided(&logs).filter(|(_, script)| script.is_live(owner)).count();
            if live >= self.most_scripts(owner) {
                return Err(full(format!("you have {live} scripts, as many as may be")));
            }
            name_is_free(&logs, owner, &version.name, id)?;
            let purged =
                make_room(&logs, owner, version.bytes(), self.options.max_library_bytes())?;
            let stream = log::stream::<Script>(id)
                .map_err(|error| ToolError::internal(error.to_string()))?;
            let log = Log::of(self.journal.clone(), stream, None);
            let saved = Decision::record(Record::Saved { owner, version });
            let written = log.decide(|_| Ok::<_, ToolError>(saved))?;
            logs.insert(id, log.clone());
            (log, written_then_removed(&mut logs, written, &purged))
        };
        done(written).await?;
        row_of(id, &log)
    }

    pub(crate) async fn update(self: Arc<Self>, cx: CallCx, input: Update) -> Answer<ScriptRow> {
        let owner = self.owner(cx.session)?;
        let (id, log, written) = {
            let mut logs = self.logs();
            let (id, log, script) = live(&logs, owner, &input.id)?;
            let before = script.newest();
            let description = input.description.or_else(|| before.description.clone());
            let tags = input.tags.map_or_else(|| before.tags.clone(), |given| tags(Some(given)));
            let version = Arc::new(version(input.name, input.code, description, tags)?);
            name_is_free(&logs, owner, &version.name, id)?;
            let purged =
                make_room(&logs, owner, version.bytes(), self.options.max_library_bytes())?;
            let updated = Decision::record(Record::Updated { version });
            let written = log.decide(|_| Ok::<_, ToolError>(updated))?;
            (id, log, written_then_removed(&mut logs, written, &purged))
        };
        done(written).await?;
        row_of(id, &log)
    }

    pub(crate) async fn delete(self: Arc<Self>, cx: CallCx, input: Delete) -> Answer<ScriptRow> {
        let owner = self.owner(cx.session)?;
        let (id, log, written) = {
            let logs = self.logs();
            let (id, log, _) = live(&logs, owner, &input.id)?;
            let deleted = Decision::record(Record::Deleted { at: Utc::now() });
            let written = log.decide(|_| Ok::<_, ToolError>(deleted))?;
            (id, log, written)
        };
        written.await?;
        row_of(id, &log)
    }

    /// Script of a user, and the number and content of one of its versions.
    fn find(
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

    pub(crate) async fn get(self: Arc<Self>, cx: CallCx, input: Get) -> Answer<ScriptText> {
        let owner = self.owner(cx.session)?;
        let (id, script, number, asked) = self.find(owner, &input.id, input.version)?;
        let versions = script.versions.iter().zip(1..).map(|(version, number)| VersionRow {
            version: number,
            name: version.name.clone(),
            size_bytes: version.code.len() as u64,
            updated_at: version.at,
        });
        Ok(ScriptText {
            row: row(id, &script, number, &asked),
            code: asked.code.clone(),
            versions: versions.collect(),
        })
    }

    pub(crate) async fn list(self: Arc<Self>, cx: CallCx, input: List) -> Answer<Listed> {
        let owner = self.owner(cx.session)?;
        let wanted = input.q.as_deref().map(str::to_lowercase);
        let has = |text: &str| wanted.as_ref().is_none_or(|q| text.to_lowercase().contains(q));
        let fits = |script: &Script| {
            let newest = script.newest();
            script.is_live(owner)
                && input.tag.as_ref().is_none_or(|tag| newest.tags.contains(tag))
                && (has(&newest.name) || newest.description.as_deref().is_some_and(has))
        };
        let mut rows: Vec<_> = {
            let logs = self.logs();
            let durable = logs.iter().filter_map(|(id, log)| Some((*id, log.state()?)));
            durable
                .filter(|(_, script)| fits(script))
                .map(|(id, script)| newest(id, &script))
                .collect()
        };
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        let total = rows.len();
        if let Some(after) = input.after {
            rows.retain(|row| row.name > after);
        }
        let more = rows.len() > input.limit;
        rows.truncate(input.limit);
        let next = rows.last().filter(|_| more).map(|row| row.name.clone());
        Ok(Listed { scripts: rows, total, next })
    }
}

/// Takes scripts out that were to make room for what is decided now, and removes them for good once that
/// is durable, whether or not anybody waits. After a crash before it, they are still there and removed
/// later.
fn written_then_removed(
    logs: &mut Logs,
    written: BoxFuture<'static, Result<(), LogError>>,
    purged: &[ScriptId],
) -> JoinHandle<Answer<()>> {
    let purged: Vec<_> = purged.iter().filter_map(|id| logs.remove(id)).collect();
    tokio::spawn(async move {
        written.await?;
        for log in purged {
            log.forget().await?;
        }
        Ok(())
    })
}

/// Outcome of [`written_then_removed`].
async fn done(work: JoinHandle<Answer<()>>) -> Answer<()> {
    work.await.unwrap_or_else(|panic| Err(ToolError::internal(format!("a script: {panic}"))))
}

fn tags(given: Option<Vec<ScriptTag>>) -> Vec<String> {
    let mut tags: Vec<_> = given.into_iter().flatten().map(|tag| tag.0).collect();
    tags.sort_unstable();
    tags.dedup();
    tags
}

/// A version of now, if its parts are within their limits in bytes.
fn version(
    name: String,
    code: String,
    description: Option<String>,
    tags: Vec<String>,
) -> Answer<Version> {
    let described = description.as_ref().map_or(0, String::len);
    for (what, bytes, most) in [
        ("name", name.len(), MAX_NAME_BYTES),
        ("code", code.len(), MAX_CODE_BYTES),
        ("description", described, MAX_DESCRIPTION_BYTES),
    ] {
        if bytes > most {
            let message = format!("`{what}` has {bytes} bytes, {most} are allowed");
            return Err(ToolError::new(Layer::Actor, codes::TOO_LARGE, message));
        }
    }
    Ok(Version { name, description, tags, code, at: Utc::now() })
}

fn row_of(id: ScriptId, log: &Log<Script>) -> Answer<ScriptRow> {
    let script = log.state().ok_or_else(|| not_found(&id.to_string()))?;
    Ok(newest(id, &script))
}

fn newest(id: ScriptId, script: &Script) -> ScriptRow {
    row(id, script, script.versions.len() as u64, script.newest())
}

fn row(id: ScriptId, script: &Script, number: u64, version: &Version) -> ScriptRow {
    ScriptRow {
        id,
        name: version.name.clone(),
        description: version.description.clone(),
        tags: version.tags.clone(),
        version: number,
        size_bytes: version.code.len() as u64,
        created_at: script.versions[0].at,
        updated_at: version.at,
        deleted_at: script.deleted_at,
    }
}
