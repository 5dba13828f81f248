//! A try of a node under way, and how it ends.

use chrono::{DateTime, Utc};
use hivekeep_kernel::ToolError;
use hivekeep_manifest::dag::DagStream;
use hivekeep_plan::{
    lower::StepWork,
    progress::{NodeKey, NodeOutcome, TryEnd},
    resolve::TextField,
};
use serde_json::Value;

use super::{
    NodeLeft, RunFold,
    container::StepContainer,
    failure::failed,
    records::RunChild,
    scope::{RunScopes, artifacts_folder},
    script::StepShell,
    state::RunWork,
};

/// Actions whose settings are recorded nowhere but masked, and groups of them: they may have secrets.
const WITHIN: &str = "run exec docker.run container.run harness.run http.request wait.http template.render \
    jq.filter log.write outputs.write";
const WITHIN_GROUPS: [&str; 3] = ["file.", "artifact.", "git."];

/// End of a try, with what it left.
pub(super) struct NodeEnd {
    pub(super) end: TryEnd,
    pub(super) left: NodeLeft,
}

impl NodeEnd {
    pub(super) fn of(outcome: NodeOutcome) -> Self {
        let end = TryEnd { outcome, exit_code: None, said: false, again: false, last: false };
        Self { end, left: NodeLeft::default() }
    }

    pub(super) fn failed(error: ToolError) -> Self {
        let mut failed = Self::of(NodeOutcome::Failed);
        failed.left.error = Some(Box::new(error));
        failed
    }
}

/// Outcome of a try for now.
pub(super) enum AttemptEnd {
    Ended(Box<NodeEnd>),
    /// Children are begun; the try ends when they have.
    Expands(Vec<RunChild>),
    /// A person is asked; the try ends with the answer.
    Waits(Box<NodeLeft>),
    /// Another try follows at this time.
    Pauses(DateTime<Utc>),
}

impl From<NodeEnd> for AttemptEnd {
    fn from(end: NodeEnd) -> Self {
        Self::Ended(Box::new(end))
    }
}

/// Whether the DAG refers to the standard output of a step.
pub(super) fn is_stdout_read(state: &RunFold, node: &StepWork) -> bool {
    let Some(id) = node.step.id() else { return false };
    let dag = serde_json::to_string(&*state.begun.dag).unwrap_or_default();
    dag.contains(&format!("{id}.stdout"))
}

/// A try under way.
pub(super) struct NodeTry<'t> {
    pub(super) state: &'t RunFold,
    pub(super) work: &'t RunWork,
    pub(super) key: NodeKey,
    pub(super) node: &'t StepWork,
    pub(super) name: String,
    pub(super) folder: String,
    pub(super) scopes: RunScopes,
    /// Container of its own.
    pub(super) container: Option<StepContainer>,
    /// Container of its own, or else of the DAG.
    pub(super) within: Option<StepContainer>,
    /// True where an earlier incarnation may have begun its work.
    pub(super) resumed: bool,
}

impl NodeTry<'_> {
    pub(super) fn path(&self, path: &str) -> Result<String, ToolError> {
        self.scopes.resolve(self.work, path, TextField::Path)
    }

    /// File with the standard output of the try, where the DAG refers to that.
    pub(super) fn read_stream(&self) -> Option<String> {
        is_stdout_read(self.state, self.node).then(|| format!("{}/stdout", self.folder))
    }

    /// Whether the settings of the step stay in its place, or with whom it asks for something.
    pub(super) fn is_within(&self) -> bool {
        let action = self.node.action.as_str();
        WITHIN.split(' ').any(|one| one == action)
            || WITHIN_GROUPS.iter().any(|group| action.starts_with(group))
    }

    /// Checks that no secret is in what would be recorded or shown elsewhere.
    ///
    /// # Errors
    /// `step_failed`.
    pub(super) fn keeps_secrets(&self, value: &Value) -> Result<(), ToolError> {
        match self.scopes.secrets.masks.finds_in(value) {
            false => Ok(()),
            true => Err(failed(format!(
                "a secret is in what `{:.80}` is given, which is recorded",
                self.node.action
            ))
            .next("name the secret in the `secrets` of the DAG whose command needs it")),
        }
    }

    pub(super) fn shell(&self, with: &serde_json::Map<String, Value>) -> StepShell {
        let resolve = |text: &str| self.scopes.of_dag(self.work, text);
        StepShell::of(with, &self.state.begun.dag, &resolve)
    }
}

/// Name of a try, in the names of its tasks and in its folder.
pub(crate) fn try_name(key: NodeKey) -> String {
    format!("{}.{}", key.node.0, key.tries)
}

/// File that takes a stream: one that the step names, or an artifact.
pub(super) fn stream_file(
    of: &NodeTry<'_>,
    stream: &Option<DagStream>,
) -> Result<Option<String>, ToolError> {
    let path = match stream {
        Some(DagStream::File(path)) => return of.path(path).map(Some),
        Some(DagStream::Detail(detail)) => detail.artifact.as_ref(),
        None => None,
    };
    let Some(path) = path.map(|path| of.path(path)).transpose()? else { return Ok(None) };
    match path.starts_with('/') || path.split('/').any(|part| part == "..") {
        true => Err(failed(format!("`{path:.80}` is not a path among the artifacts"))),
        false => Ok(Some(format!("{}/{path}", artifacts_folder(of.state)))),
    }
}
