//! Files below `/workspace` of executions, side by side and beside the checkpoint that they begin with.
//!
//! Each machine lists its files with their hashes; one that was stopped is started for that, and stopped again. The
//! checkpoint is read in a fork of it, the caller's own for as long as it takes: the session that made the checkpoint
//! is over, mostly. The fork has no network and destroys itself if the daemon dies meanwhile.
//! Machines are not trusted: what they say is bounded, and paths are shown, never opened on the host.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::future::join_all;
use hivekeep_kernel::{CallCx, ExecutionId, Layer, ToolError};
use hivekeep_ports::{OwnedSnapshot, WorkspaceForks};
use hivekeep_runtime::OnBehalfOf;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::json;
use similar::TextDiff;

use super::Answer;
use crate::{
    codes,
    execution::{place::ExecutionMachines, state::ExecutionState},
    files::{RunningMachine, text_of},
};

/// Hash of each file, and its size. One whose path has a line break could forge the line of another, and some programs
/// write such a path, or one with a backslash, otherwise.
const LIST: &str = "cd /workspace && find . -xdev -name .git -prune -o -type f ! -path '*[\n\r\\\\]*' \
    -exec sha256sum {} + -exec stat -c '%s %n' {} +";
/// Longest list of a machine, some thousand files: up to 17 are in memory at a time.
const LIST_BYTES: u64 = 1024 * 1024;
const LIST_SECS: u64 = 60;
/// Hexadecimal digits of a hash.
const HASH: usize = 64;
/// Time for a stop, or a removal, behind the comparison.
const TIDYING: Duration = Duration::from_secs(60);
/// Lifetime of a checkpoint's fork that nobody removes.
const FORK_SECS: u64 = 600;
/// Files that differ and are shown.
const MOST_FILES: usize = 100;
/// Texts that are compared: how many, up to which size, how much of a difference is shown, and the time for one.
const MOST_TEXTS: usize = 16;
const TEXT_BYTES: u64 = 16 * 1024;
const DIFF_BYTES: usize = 2 * 1024;
const DIFF_TIME: Duration = Duration::from_millis(100);

/// Files that differ between the machines that could be read, and from the checkpoint. Regular files below
/// `/workspace` and on its file system, without those in `.git` and those with a line break or a backslash in their
/// paths.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct FilesCompared {
    /// Why the files of the common checkpoint are not among them; null where they are, or where there is none.
    checkpoint_error: Option<String>,
    /// How many differ.
    total: usize,
    /// The first 100, by path.
    files: Vec<DifferentFile>,
}

/// File that differs.
#[derive(Debug, Serialize, JsonSchema)]
struct DifferentFile {
    /// Path below `/workspace`.
    path: String,
    /// Size in the checkpoint; null where that has no such file, or is not compared.
    checkpoint_bytes: Option<u64>,
    /// Contents that it has, each with the executions that have it.
    versions: Vec<FileVersion>,
}

/// Content of a file.
#[derive(Debug, Serialize, JsonSchema)]
struct FileVersion {
    /// Executions that have it.
    execution_ids: Vec<ExecutionId>,
    /// Size; null where they have no such file.
    size_bytes: Option<u64>,
    /// Unified difference from the checkpoint, or without one from the first version. For the first few short texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

/// Size and hash of a file.
type FileFacts = (u64, String);
type FileTree = BTreeMap<String, FileFacts>;
/// A machine, with its files.
type ReadTree = (RunningMachine, FileTree);

impl ExecutionMachines {
    /// Compares the files of executions; beside that the error of each whose files could not be read.
    pub(super) async fn compare(
        &self,
        cx: &CallCx,
        forks: &dyn WorkspaceForks,
        states: &[ExecutionState],
    ) -> (FilesCompared, Vec<Option<String>>) {
        let read = join_all(states.iter().map(|state| self.tree_of(cx, state))).await;
        let snapshot = common_checkpoint(states);
        let (checkpoint, checkpoint_error) = match snapshot {
            Ok(Some((id, snapshot))) => match self.checkpoint_tree(cx, forks, id, snapshot).await {
                Ok(read) => (Some(read), None),
                Err(error) => (None, Some(error.to_text())),
            },
            Ok(None) => (None, None),
            Err(why) => (None, Some(why)),
        };
        let trees: Vec<_> = read.iter().filter_map(|read| read.as_ref().ok()).collect();
        let (mut files, total) = differences(checkpoint.as_ref().map(|it| &it.1), &trees);
        self.add_texts(checkpoint.as_ref(), &trees, &mut files).await;
        join_all(trees.iter().map(|(machine, _)| self.put_back(machine))).await;
        if let Some((fork, _)) = &checkpoint {
            self.drop_fork(fork).await;
        }
        let errors = read.iter().map(|read| read.as_ref().err().map(ToolError::to_text)).collect();
        (FilesCompared { checkpoint_error, total, files }, errors)
    }

    async fn tree_of(&self, cx: &CallCx, state: &ExecutionState) -> Answer<ReadTree> {
        if state.stands_still() {
            let why = "its machine stands still while it waits, and a look would have it go on";
            return Err(not_listed(why.to_owned()));
        }
        let mut machine = self.running(state).await?;
        // An execution that still works has its machine as it needs it.
        machine.was_off &= state.end.is_some();
        machine.caller.cancel = cx.cancel.clone();
        match self.tree(&machine).await {
            Ok(tree) => Ok((machine, tree)),
            Err(error) => {
                self.put_back(&machine).await;
                Err(error)
            }
        }
    }

    /// Stops a machine again that was started for the reading.
    async fn put_back(&self, machine: &RunningMachine) {
        if machine.was_off {
            let RunningMachine { execution, workspace, .. } = machine;
            let stop = json!({ "workspace_id": workspace });
            let stopped: Answer<IgnoredAny> =
                self.tools.call(*execution, &tidying(machine), "workspace_stop", stop).await;
            if let Err(error) = stopped {
                tracing::warn!(%workspace, %error, "it runs on until its lifetime ends");
            }
        }
    }

    /// Files of a checkpoint, in a fork of it.
    async fn checkpoint_tree(
        &self,
        cx: &CallCx,
        forks: &dyn WorkspaceForks,
        id: ExecutionId,
        of: &OwnedSnapshot,
    ) -> Answer<ReadTree> {
        let workspace = forks.fork_to_read(cx, of, FORK_SECS).await?;
        let caller = OnBehalfOf::call(cx);
        let fork = RunningMachine { execution: id, caller, workspace, was_off: false };
        match self.tree(&fork).await {
            Ok(tree) => Ok((fork, tree)),
            Err(error) => {
                self.drop_fork(&fork).await;
                Err(error)
            }
        }
    }

    async fn drop_fork(&self, fork: &RunningMachine) {
        let name = fork.workspace.to_string();
        if let Err(error) = self.tools.remove(fork.execution, &tidying(fork), &name).await {
            tracing::warn!(workspace = %fork.workspace, %error, "it goes with its lifetime");
        }
    }

    async fn tree(&self, machine: &RunningMachine) -> Answer<FileTree> {
        #[derive(Deserialize)]
        struct Listed {
            exit_code: i32,
            stdout: String,
            stderr: String,
            truncated: bool,
        }
        let RunningMachine { execution, caller, workspace, .. } = machine;
        let list = json!({
            "workspace_id": workspace, "command": LIST, "user": "root", "timeout_secs": LIST_SECS,
            "max_output_bytes": LIST_BYTES,
        });
        let listed: Listed = self.tools.call_idempotent(*execution, caller, "exec", list).await?;
        let failed = |why: String| Err(not_listed(why));
        match (listed.truncated, listed.exit_code) {
            (true, _) => failed(format!("the list of its files has more than {LIST_BYTES} bytes")),
            (_, 0) => Ok(parsed(&listed.stdout)),
            (_, code) => {
                failed(format!("its files were not listed ({code}): {:.200}", listed.stderr))
            }
        }
    }

    /// Shows what the first short texts differ in.
    async fn add_texts(
        &self,
        checkpoint: Option<&ReadTree>,
        trees: &[&ReadTree],
        files: &mut [DifferentFile],
    ) {
        let mut left = MOST_TEXTS;
        for DifferentFile { path, checkpoint_bytes, versions } in files {
            let sizes = versions.iter().filter_map(|it| it.size_bytes).chain(*checkpoint_bytes);
            if versions.len() > left || sizes.max().is_some_and(|size| size > TEXT_BYTES) {
                continue;
            }
            left -= versions.len();
            let first = versions.first().and_then(|it| it.execution_ids.first().copied());
            let machine = |id: Option<ExecutionId>| {
                trees.iter().find(|(it, _)| Some(it.execution) == id).map(|(it, _)| it)
            };
            let before = match (checkpoint, first) {
                (Some((fork, _)), _) => self.text(Some(fork), path, *checkpoint_bytes).await,
                (None, first) => self.text(machine(first), path, versions[0].size_bytes).await,
            };
            let Some(before) = before else { continue };
            for version in versions {
                let of = machine(version.execution_ids.first().copied());
                let now = self.text(of, path, version.size_bytes).await;
                version.diff =
                    now.map(|now| unified(path, &before, &now)).filter(|it| !it.is_empty());
            }
        }
    }

    /// Text of a file; empty where it is not there, none for what is none or cannot be read.
    async fn text(
        &self,
        of: Option<&RunningMachine>,
        path: &str,
        size: Option<u64>,
    ) -> Option<String> {
        if size.is_none() {
            return Some(String::new());
        }
        let part = self.part(of?, path, 0, TEXT_BYTES).await.ok()?;
        text_of(part.bytes, false).0
    }
}

/// Whoever puts a machine back, also behind a comparison that was cut short.
fn tidying(machine: &RunningMachine) -> OnBehalfOf {
    OnBehalfOf::own(machine.caller.session, TIDYING)
}

fn not_listed(why: String) -> ToolError {
    let next = "compare without `files`, and read single ones with aegis.execution.file";
    ToolError::new(Layer::Guest, codes::FILES_NOT_LISTED, why).next(next)
}

/// Checkpoint that all begin with whose machines begin as one, with an execution that does.
///
/// # Errors
/// Why there are several.
fn common_checkpoint(
    states: &[ExecutionState],
) -> Result<Option<(ExecutionId, &OwnedSnapshot)>, String> {
    let mut all = states.iter().filter_map(|state| {
        let snapshot = state.forks.origin.as_ref()?.machine.as_ref()?;
        Some((state.begun.id, snapshot))
    });
    let first = all.next();
    match all.all(|(_, snapshot)| first.is_some_and(|(_, it)| it == snapshot)) {
        true => Ok(first),
        false => Err("they begin with different checkpoints".to_owned()),
    }
}

fn parsed(list: &str) -> FileTree {
    let (mut hashes, mut sizes) = (BTreeMap::new(), BTreeMap::new());
    for line in list.lines() {
        let Some((fact, path)) = line.split_once(' ') else { continue };
        let Some(path) = path.trim_start_matches(' ').strip_prefix("./") else { continue };
        match fact.parse::<u64>() {
            _ if fact.len() == HASH => {
                hashes.insert(path, fact);
            }
            Ok(size) => {
                sizes.insert(path, size);
            }
            Err(_) => {}
        }
    }
    let facts = hashes.into_iter();
    facts
        .filter_map(|(path, hash)| Some((path.to_owned(), (*sizes.get(path)?, hash.to_owned()))))
        .collect()
}

/// The first files that are not the same everywhere, and how many there are.
fn differences(checkpoint: Option<&FileTree>, trees: &[&ReadTree]) -> (Vec<DifferentFile>, usize) {
    let all = trees.iter().map(|(_, tree)| tree).chain(checkpoint);
    let paths: BTreeSet<_> = all.clone().flat_map(BTreeMap::keys).collect();
    let differs = |path: &&String| {
        let mut facts = all.clone().map(|tree| tree.get(*path));
        let first = facts.next();
        facts.any(|it| Some(it) != first)
    };
    let different: Vec<_> = paths.into_iter().filter(differs).collect();
    let shown = different.iter().take(MOST_FILES).map(|path| {
        let mut versions = Vec::<(Option<&FileFacts>, Vec<ExecutionId>)>::new();
        for (machine, tree) in trees {
            let facts = tree.get(*path);
            match versions.iter_mut().find(|(known, _)| *known == facts) {
                Some((_, ids)) => ids.push(machine.execution),
                None => versions.push((facts, vec![machine.execution])),
            }
        }
        let versions = versions.into_iter().map(|(facts, execution_ids)| FileVersion {
            execution_ids,
            size_bytes: facts.map(|facts| facts.0),
            diff: None,
        });
        DifferentFile {
            path: (*path).clone(),
            checkpoint_bytes: checkpoint.and_then(|tree| tree.get(*path)).map(|facts| facts.0),
            versions: versions.collect(),
        }
    });
    (shown.collect(), different.len())
}

fn unified(path: &str, before: &str, now: &str) -> String {
    let texts = TextDiff::configure().timeout(DIFF_TIME).diff_lines(before, now);
    let mut diff =
        texts.unified_diff().header(&format!("a/{path}"), &format!("b/{path}")).to_string();
    if diff.len() > DIFF_BYTES {
        diff.truncate(diff.floor_char_boundary(DIFF_BYTES));
        diff.push('…');
    }
    diff
}
