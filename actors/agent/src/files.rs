//! The tool `aegis.execution.file`: a file of an execution's workspace, as text or as a link to it; and the same files
//! for the door that serves the links.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{CallCx, ExecutionId, Layer, SessionId, ToolError, User, WorkspaceId, tools};
use hivekeep_ports::{
    ExecutionFileLinks, ExecutionFiles, FilePart, WorkspaceReadiness, own_workspace_name,
};
use hivekeep_runtime::{OnBehalfOf, runs::RunCaller};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::json;

use crate::{
    codes,
    execution::{place::ExecutionMachines, state::ExecutionState},
    tools::AgentService,
};

type Answer<T> = Result<T, ToolError>;

/// Largest text that an answer has itself: a few screens.
const INLINE_BYTES: u64 = 16 * 1024;
/// Bytes of one read for a link.
const PART_BYTES: u64 = 1024 * 1024;
/// Longest life of a link.
const LINK_MINUTES: i64 = 15;
/// Time for a read, with the start of a workspace that was stopped.
const READING: Duration = Duration::from_secs(120);

/// Get a file that an execution made: a short text as it is, anything else as a link that opens without a credential
/// for up to 15 minutes. Works as long as the execution's workspace is kept.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExecutionFile {
    /// Id of the execution.
    execution_id: String,
    /// Path below `/workspace`; a leading `workspace/` is left out.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
}

/// A file of an execution.
#[derive(Debug, Serialize, JsonSchema)]
struct FileOfExecution {
    /// Id of the execution.
    execution_id: ExecutionId,
    /// Path below `/workspace`.
    path: String,
    /// The text, where it is a short one.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// Link to the file, otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    download_url: Option<String>,
    /// Time at which the link ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<DateTime<Utc>>,
    /// Media type, guessed by the name.
    content_type: String,
    /// Whether it is anything else than UTF-8 text, by its beginning.
    is_binary: bool,
    /// Size.
    size_bytes: u64,
}

tools! { pub(crate) FAMILY: "tasks" for service AgentService, singleton agents;
    execution_file: ExecutionFile => FileOfExecution = AgentService::file {
        name: "aegis.execution.file", title: "Get a file of an execution", effect: Read,
        rate: RateClass::File, timeout_secs: 120,
    };
}

impl AgentService {
    async fn file(self: Arc<Self>, cx: CallCx, input: ExecutionFile) -> Answer<FileOfExecution> {
        let view = self.runs.get(self.run_caller(&cx), &input.execution_id)?;
        let (id, path) = (view.state.begun.id, below_workspace(&input.path)?);
        let read = self.machines.read(&view.state, &path, 0, INLINE_BYTES);
        let FilePart { bytes, size_bytes, next } = cx.guard(read).await?;
        let (text, is_binary) = text_of(bytes, next.is_some());
        let guessed = mime_guess::from_path(&path).first_raw();
        let content_type = match (guessed, is_binary) {
            (Some(guessed), _) => guessed,
            (None, true) => "application/octet-stream",
            (None, false) => "text/plain",
        };
        let content = text.filter(|_| next.is_none());
        let (mut download_url, mut expires_at) = (None, None);
        if content.is_none() {
            let links =
                self.ports.find::<dyn ExecutionFileLinks>().ok_or_else(|| unserved(size_bytes))?;
            let soon = Utc::now() + TimeDelta::minutes(LINK_MINUTES);
            let until = view.state.files_until.map_or(soon, |until| until.min(soon));
            let user = view.state.begun.user;
            download_url = Some(links.link(user, &id.to_string(), &path, until));
            expires_at = Some(until);
        }
        Ok(FileOfExecution {
            execution_id: id,
            path,
            content,
            download_url,
            expires_at,
            content_type: content_type.to_owned(),
            is_binary,
            size_bytes,
        })
    }
}

#[async_trait]
impl ExecutionFiles for AgentService {
    fn user(&self, execution: &str) -> Option<User> {
        let any = RunCaller { user: User::Nobody, operator: true };
        self.runs.get(any, execution).ok().map(|view| view.state.begun.user)
    }

    async fn read(&self, execution: &str, path: &str, from: u64) -> Answer<FilePart> {
        let any = RunCaller { user: User::Nobody, operator: true };
        let (view, path) = (self.runs.get(any, execution)?, below_workspace(path)?);
        self.machines.read(&view.state, &path, from, PART_BYTES).await
    }
}

/// Workspace of an execution whose files can be read.
pub(crate) struct RunningMachine {
    pub(crate) execution: ExecutionId,
    /// Session that owns it.
    pub(crate) caller: OnBehalfOf,
    pub(crate) workspace: WorkspaceId,
    /// True if it was started for the reading.
    pub(crate) was_off: bool,
}

impl ExecutionMachines {
    /// Workspace of an execution, which is started where it was stopped.
    ///
    /// # Errors
    /// `execution_files_gone`; those of `workspace_start`.
    pub(crate) async fn running(&self, state: &ExecutionState) -> Answer<RunningMachine> {
        let (id, session) = (state.begun.id, state.child.ok_or_else(gone)?);
        let (workspace, readiness) = self.workspace(session, state.workspace)?;
        let caller = OnBehalfOf::own(session, READING);
        let mut was_off = readiness == WorkspaceReadiness::Off;
        if was_off {
            let start = json!({ "workspace_id": workspace });
            let started: Answer<IgnoredAny> =
                self.tools.call(id, &caller, "workspace_start", start).await;
            was_off = match started {
                Ok(_) => true,
                // Another read has started it, and stops it.
                Err(error) if error.is(codes::WORKSPACE_STATE) => false,
                Err(error) => return Err(error),
            };
        }
        Ok(RunningMachine { execution: id, caller, workspace, was_off })
    }

    /// Reads a part of a file in an execution's workspace, which is started where it was stopped.
    ///
    /// # Errors
    /// `execution_files_gone`; those of `fs.get`.
    async fn read(
        &self,
        state: &ExecutionState,
        path: &str,
        from: u64,
        max_bytes: u64,
    ) -> Answer<FilePart> {
        self.part(&self.running(state).await?, path, from, max_bytes).await
    }

    /// Reads a part of a file below `/workspace`.
    ///
    /// # Errors
    /// Those of `fs.get`.
    pub(crate) async fn part(
        &self,
        of: &RunningMachine,
        path: &str,
        from: u64,
        max_bytes: u64,
    ) -> Answer<FilePart> {
        #[derive(Deserialize)]
        struct Got {
            content_base64: String,
            bytes: u64,
            next: Option<u64>,
        }
        let get =
            json!({ "place": of.workspace, "path": path, "from": from, "max_bytes": max_bytes });
        let got: Got = self.tools.call_idempotent(of.execution, &of.caller, "fs.get", get).await?;
        let bytes = STANDARD.decode(got.content_base64);
        let bytes = bytes.map_err(|error| ToolError::internal(format!("fs.get: {error}")))?;
        Ok(FilePart { bytes, size_bytes: got.bytes, next: got.next })
    }

    /// Workspace of an execution's session, unless somebody has taken it over.
    fn workspace(
        &self,
        session: SessionId,
        known: Option<WorkspaceId>,
    ) -> Answer<(WorkspaceId, WorkspaceReadiness)> {
        let name = known.map_or_else(|| own_workspace_name(session), |id| id.to_string());
        let found = self.files.find(&name).filter(|found| found.owner == Some(session));
        found.map(|found| (found.id, found.readiness)).ok_or_else(gone)
    }
}

fn gone() -> ToolError {
    let message = "the execution has no workspace, or it is not kept any more";
    ToolError::new(Layer::Actor, codes::EXECUTION_FILES_GONE, message)
        .next("aegis.task.logs shows until when it was kept; have the agent keep its results in a volume or the vault")
}

fn unserved(size_bytes: u64) -> ToolError {
    let message = format!(
        "the file is binary or longer than {INLINE_BYTES} bytes ({size_bytes}), and this daemon serves no links"
    );
    ToolError::new(Layer::Actor, codes::LINKS_NOT_SERVED, message)
        .next("have the operator set `http.api.enabled`; or workspace_adopt takes the workspace over, and fs.get reads it")
}

/// Path as it is below `/workspace`.
///
/// # Errors
/// `invalid_path` for one that leads out by its name, or names nothing.
fn below_workspace(path: &str) -> Answer<String> {
    let inner = path.trim_start_matches('/');
    let inner = inner.strip_prefix("workspace/").unwrap_or(inner);
    let parts: Vec<_> = inner.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.is_empty() || parts.contains(&"..") || inner.contains('\0') {
        let message = format!("`{path:.80}` names no file below `/workspace`");
        return Err(ToolError::new(Layer::Actor, codes::INVALID_PATH, message)
            .next("name the file by its path below `/workspace`, without `..`"));
    }
    Ok(parts.join("/"))
}

/// Text of a file's beginning, and whether it is none. A character that the end of the part cuts is one.
pub(crate) fn text_of(bytes: Vec<u8>, goes_on: bool) -> (Option<String>, bool) {
    if bytes.contains(&0) {
        return (None, true);
    }
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), false),
        Err(error) => (None, !(goes_on && error.utf8_error().error_len().is_none())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_the_workspace() {
        for (path, inner) in [
            ("a.txt", "a.txt"),
            ("workspace/out/a", "out/a"),
            ("/workspace/a", "a"),
            ("./a//b/", "a/b"),
            ("/etc/passwd", "etc/passwd"),
            ("workspace", "workspace"),
        ] {
            assert_eq!(below_workspace(path).as_deref(), Ok(inner), "{path}");
        }
        for path in ["", "/", "workspace/", "..", "a/../../b", "workspace/../../etc", "a\0"] {
            assert_eq!(below_workspace(path).expect_err(path).code, "invalid_path");
        }
    }

    #[test]
    fn a_text_is_one_also_where_a_part_cuts_a_character() {
        let text = "ä".repeat(3);
        assert_eq!(text_of(text.clone().into_bytes(), false), (Some(text.clone()), false));
        let cut = || text.as_bytes()[..5].to_vec();
        assert_eq!(text_of(cut(), true), (None, false));
        assert_eq!(text_of(cut(), false), (None, true));
        assert_eq!(text_of(b"a\0".to_vec(), true), (None, true));
        assert_eq!(text_of(vec![0xff, b'a'], true), (None, true));
    }
}
