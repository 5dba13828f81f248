//! The tools of the script library.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use hivekeep_kernel::{
    CallCx, Layer, ScriptId, Service, ServiceActor, ToolError, ToolGroup, tools,
};
use hivekeep_runtime::log::{self, Decision, Log, LogError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::{
    codes,
    scripts::{
        Answer, Logs, Record, Script, Scripts, Version, decided, full, live, make_room,
        name_is_free, not_found,
    },
};

/// Size of a program in bytes; the schema's bound is the same number of characters.
const MAX_CODE_BYTES: usize = 256 * 1024;
/// Size of a description in bytes.
const MAX_DESCRIPTION_BYTES: usize = 2 * 1024;
/// Size of a name in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Tag of a script.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(inline)]
struct ScriptTag(#[schemars(regex(pattern = "^[a-z0-9_-]{1,32}$"))] String);

/// Keep a program for later sessions, under a name of your own. It outlives this session and every
/// workspace, and each later change keeps the version before.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Save {
    /// Name that no other script of yours has: at most 128 bytes, without `/`, `\` and control characters.
    #[schemars(length(min = 1, max = MAX_NAME_BYTES), regex(pattern = r"^[^/\\\p{Cc}]+$"))]
    name: String,
    /// The program, at most 256 KiB.
    #[schemars(length(min = 1, max = MAX_CODE_BYTES))]
    code: String,
    /// Purpose of the script, at most 2 KiB.
    #[schemars(length(max = MAX_DESCRIPTION_BYTES))]
    description: Option<String>,
    /// Tags to find it by: at most 16, each of 1 to 32 of `a-z`, `0-9`, `-` and `_`.
    #[schemars(length(max = 16))]
    tags: Option<Vec<ScriptTag>>,
}

/// List your scripts by name, without their code.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// Only those with this tag.
    tag: Option<String>,
    /// Only those with this text in name or description, in any case.
    q: Option<String>,
    /// Continue after this name: the `next` of the page before.
    after: Option<String>,
    /// Most scripts, 1 to 500.
    #[schemars(range(min = 1, max = 500))]
    #[serde(default = "default_rows")]
    limit: usize,
}

fn default_rows() -> usize {
    50
}

/// Read a script with its code, and the list of its versions. A deleted one can be read by its id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Get {
    /// Id or name of the script.
    id: String,
    /// Version to read. Default: the newest.
    version: Option<u64>,
}

/// Change a script: its next version. The versions before can still be read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Update {
    /// Id or name of the script.
    id: String,
    /// Name from now on: as for `aegis.script.save`.
    #[schemars(length(min = 1, max = MAX_NAME_BYTES), regex(pattern = r"^[^/\\\p{Cc}]+$"))]
    name: String,
    /// The whole program, at most 256 KiB.
    #[schemars(length(min = 1, max = MAX_CODE_BYTES))]
    code: String,
    /// Purpose of the script. Default: as before.
    #[schemars(length(max = MAX_DESCRIPTION_BYTES))]
    description: Option<String>,
    /// Tags. Default: as before.
    #[schemars(length(max = 16))]
    tags: Option<Vec<ScriptTag>>,
}

/// Delete a script: its name is free at once. Its versions can be read by its id until the library needs
/// the room.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Delete {
    /// Id or name of the script.
    id: String,
}

/// A script, without its code.
#[derive(Debug, Serialize, JsonSchema)]
struct ScriptRow {
    /// Id.
    id: ScriptId,
    /// Name.
    name: String,
    /// Purpose of the script.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Tags.
    tags: Vec<String>,
    /// Number of this version, from 1.
    version: u64,
    /// Size of the code.
    size_bytes: u64,
    /// Time of the first version.
    created_at: DateTime<Utc>,
    /// Time of this version.
    updated_at: DateTime<Utc>,
    /// Time of its deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_at: Option<DateTime<Utc>>,
}

/// A page of scripts.
#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    /// Sorted by name.
    scripts: Vec<ScriptRow>,
    /// How many there are on all pages.
    total: usize,
    /// Pass as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A script with its code.
#[derive(Debug, Serialize, JsonSchema)]
struct ScriptText {
    /// The version that was asked for.
    #[serde(flatten)]
    row: ScriptRow,
    /// Its program.
    code: String,
    /// All versions, oldest first.
    versions: Vec<VersionRow>,
}

/// A version of a script.
#[derive(Debug, Serialize, JsonSchema)]
struct VersionRow {
    /// Number, from 1.
    version: u64,
    /// Name at that time.
    name: String,
    /// Size of the code.
    size_bytes: u64,
    /// Time of the version.
    updated_at: DateTime<Utc>,
}

tools! { pub(crate) FAMILY: "scripts" for service Scripts, singleton scripts;
    script_save: Save => ScriptRow = Scripts::save {
        name: "aegis.script.save", title: "Save a script",
    };
    script_list: List => Listed = Scripts::list {
        name: "aegis.script.list", title: "List scripts", effect: Read,
    };
    script_get: Get => ScriptText = Scripts::get {
        name: "aegis.script.get", title: "Read a script", effect: Read,
        result_budget_bytes: 2 * 1024 * 1024,
    };
    script_update: Update => ScriptRow = Scripts::update {
        name: "aegis.script.update", title: "Change a script",
    };
    script_delete: Delete => ScriptRow = Scripts::delete {
        name: "aegis.script.delete", title: "Delete a script", effect: Destroy,
    };
}

impl Service for Scripts {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[&FAMILY];
}

impl Scripts {
    async fn save(self: Arc<Self>, cx: CallCx, input: Save) -> Answer<ScriptRow> {
        let owner = self.sessions.caller(cx.session)?;
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

    async fn update(self: Arc<Self>, cx: CallCx, input: Update) -> Answer<ScriptRow> {
        let owner = self.sessions.caller(cx.session)?;
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

    async fn delete(self: Arc<Self>, cx: CallCx, input: Delete) -> Answer<ScriptRow> {
        let owner = self.sessions.caller(cx.session)?;
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

    async fn get(self: Arc<Self>, cx: CallCx, input: Get) -> Answer<ScriptText> {
        let owner = self.sessions.caller(cx.session)?;
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

    async fn list(self: Arc<Self>, cx: CallCx, input: List) -> Answer<Listed> {
        let owner = self.sessions.caller(cx.session)?;
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
