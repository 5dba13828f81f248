//! Event-sourced state of a repository, in its stream `repository/ID`.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{SessionId, User, VolumeId};
use hivekeep_runtime::log::Sourced;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Branch, tag or commit that a repository checks out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitRef {
    /// Kind of the ref.
    pub(crate) kind: GitRefKind,
    /// Name of the branch or tag, or the whole hash of the commit.
    #[schemars(length(min = 1, max = 250), regex(pattern = r"^[^-\s~^:?*\[\\][^\s~^:?*\[\\]*$"))]
    pub(crate) value: String,
}

impl Default for GitRef {
    fn default() -> Self {
        Self { kind: GitRefKind::Branch, value: "main".to_owned() }
    }
}

/// Kind of a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GitRefKind {
    /// A branch, which a refresh follows.
    Branch,
    /// A tag.
    Tag,
    /// A commit.
    Commit,
}

/// Parameters of a binding. They never change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BindingTerms {
    pub(crate) owner: User,
    pub(crate) label: String,
    pub(crate) repo_url: String,
    pub(crate) credential_binding_id: Option<String>,
    pub(crate) git_ref: GitRef,
    pub(crate) sparse_paths: Vec<String>,
    pub(crate) shallow: bool,
    pub(crate) volume_bytes: u64,
    pub(crate) created_at: DateTime<Utc>,
}

/// Operation on a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RepositoryOperation {
    Clone,
    Refresh { discard: bool },
    Commit,
    Push,
    Diff,
    Delete,
}

/// Operation that has begun, and the session that it is done for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub(crate) operation: RepositoryOperation,
    pub(crate) session: SessionId,
}

/// Why an operation failed, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OperationError {
    /// Code of the error.
    pub(crate) code: String,
    /// Cause of the failure, and what to do about it.
    pub(crate) message: String,
}

/// Repository as its records have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Binding {
    pub(crate) terms: BindingTerms,
    pub(crate) volume: Option<VolumeId>,
    /// Operation under way, at most one; a start of the daemon finishes or undoes it.
    pub(crate) begun: Option<Begun>,
    /// Commit of its tree, as the last operation left it.
    pub(crate) commit: Option<String>,
    /// Time at which a tree was first there.
    pub(crate) cloned_at: Option<DateTime<Utc>>,
    pub(crate) refreshed_at: Option<DateTime<Utc>>,
    pub(crate) updated_at: DateTime<Utc>,
    /// Error of the last clone or refresh, where that failed.
    pub(crate) error: Option<OperationError>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    /// Intent to bind a remote and clone it.
    Wanted { terms: BindingTerms, session: SessionId },
    /// The volume was made.
    VolumeMade { volume: VolumeId },
    /// Intent of an operation.
    Began { begun: Begun, at: DateTime<Utc> },
    /// End of the operation, with what is checked out where that is known.
    Ended {
        at: DateTime<Utc>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commit: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<OperationError>,
    },
}

impl Binding {
    /// State in the words of the tools.
    pub(crate) fn status(&self) -> &'static str {
        match self.begun.map(|begun| begun.operation) {
            Some(RepositoryOperation::Delete) => "deleting",
            Some(RepositoryOperation::Clone) if self.volume.is_none() => "pending",
            Some(RepositoryOperation::Clone) => "cloning",
            Some(RepositoryOperation::Refresh { .. }) => "refreshing",
            _ if self.cloned_at.is_some() => "ready",
            _ => "failed",
        }
    }

    fn ended(&mut self, at: DateTime<Utc>, commit: Option<String>, error: Option<OperationError>) {
        let operation = self.begun.take().map(|begun| begun.operation);
        let failed = error.is_some();
        if let Some(RepositoryOperation::Clone | RepositoryOperation::Refresh { .. }) = operation {
            self.error = error;
        }
        match operation {
            Some(RepositoryOperation::Clone) if !failed => self.cloned_at = Some(at),
            Some(RepositoryOperation::Refresh { .. }) if !failed => self.refreshed_at = Some(at),
            _ => {}
        }
        self.commit = commit.or(self.commit.take());
        self.updated_at = at;
    }
}

impl Sourced for Binding {
    const KIND: &'static str = "repository";
    const FOLD_EVERY: usize = 64;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Wanted { terms, session } => Ok(Self {
                updated_at: terms.created_at,
                terms,
                volume: None,
                begun: Some(Begun { operation: RepositoryOperation::Clone, session }),
                commit: None,
                cloned_at: None,
                refreshed_at: None,
                error: None,
            }),
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::VolumeMade { volume } if self.begun.is_some() => self.volume = Some(volume),
            Record::Began { begun, at } if self.begun.is_none() => {
                (self.begun, self.updated_at) = (Some(begun), at);
            }
            Record::Ended { at, commit, error } if self.begun.is_some() => {
                self.ended(at, commit, error);
            }
            other => return Err(other),
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
