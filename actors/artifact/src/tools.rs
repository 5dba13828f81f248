//! Tools of the artifacts.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, Service, ServiceActor, ToolError, ToolGroup, User, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ArtifactAccess, ArtifactInfo, ArtifactText, Artifacts, OpenArtifact, artifact_id, codes,
};

/// Name of the tool that reads one.
pub(crate) const READER: &str = "artifact_read";
/// Bytes in one answer at most.
const MOST_BYTES: usize = OpenArtifact::MOST_BYTES;

/// List the results that were too large for their answers and are kept for you, newest first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListArtifacts {
    /// Continue after this one: the `next` of the page before.
    after: Option<String>,
    /// Most artifacts, 1 to 200.
    #[schemars(range(min = 1, max = 200))]
    #[serde(default = "default_rows")]
    limit: usize,
}

fn default_rows() -> usize {
    50
}

/// Read a range of a result that was too large for its answer. It is JSON, as the answer would have been.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadArtifact {
    /// URI of the artifact, or its id.
    uri: String,
    /// Position in bytes to read from: the `next_offset` of the range before.
    #[serde(default)]
    offset: u64,
    /// Most bytes, 4 to 1,048,576. Characters are never cut.
    #[schemars(range(min = 4, max = MOST_BYTES))]
    #[serde(default = "default_length")]
    length: usize,
}

fn default_length() -> usize {
    32 * 1024
}

/// Delete a kept result before it expires.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeleteArtifact {
    /// URI of the artifact, or its id.
    uri: String,
}

/// An artifact.
#[derive(Debug, Serialize, JsonSchema)]
struct ArtifactRow {
    /// URI.
    uri: String,
    /// Tool whose result it is.
    tool: String,
    /// Size in bytes.
    bytes: u64,
    /// SHA-256 of the bytes.
    sha256: String,
    /// Time at which it was kept.
    created_at: DateTime<Utc>,
    /// Time at which it is removed.
    expires_at: DateTime<Utc>,
}

/// A page of artifacts.
#[derive(Debug, Serialize, JsonSchema)]
struct ListedArtifacts {
    /// Newest first.
    artifacts: Vec<ArtifactRow>,
    /// How many there are on all pages.
    total: usize,
    /// Pass as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A range of an artifact.
#[derive(Debug, Serialize, JsonSchema)]
struct ArtifactPart {
    /// The text of the range.
    text: String,
    /// Position of its first byte.
    offset: u64,
    /// Position to go on from; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// Size of the whole in bytes.
    bytes: u64,
}

tools! { pub(crate) FAMILY: "artifacts" for service Artifacts, singleton artifacts;
    artifact_list: ListArtifacts => ListedArtifacts = Artifacts::on_list {
        title: "List kept results", effect: Read,
    };
    artifact_read: ReadArtifact => ArtifactPart = Artifacts::on_read {
        // Six bytes of JSON for a byte of text at most.
        title: "Read a kept result", effect: Read, result_budget_bytes: 6 * MOST_BYTES + 1024,
    };
    artifact_delete: DeleteArtifact => ArtifactRow = Artifacts::on_delete {
        title: "Delete a kept result", effect: Destroy,
    };
}

impl Service for Artifacts {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[&FAMILY];
}

impl From<ArtifactInfo> for ArtifactRow {
    fn from(info: ArtifactInfo) -> Self {
        let uri = info.uri();
        let ArtifactInfo { tool, bytes, sha256, created_at, expires_at, .. } = info;
        Self { uri, tool, bytes, sha256, created_at, expires_at }
    }
}

impl Artifacts {
    fn caller(&self, cx: &CallCx) -> ArtifactAccess {
        // Nobody's are nobody's.
        ArtifactAccess::User(self.sessions().user(cx.session).unwrap_or(User::Nobody))
    }

    async fn on_list(
        self: Arc<Self>,
        cx: CallCx,
        input: ListArtifacts,
    ) -> Result<ListedArtifacts, ToolError> {
        let mut all = self.list(self.caller(&cx));
        let total = all.len();
        if let Some(after) = input.after {
            let after = artifact_id(&after)?;
            all.retain(|info| info.id < after);
        }
        let more = all.len() > input.limit;
        all.truncate(input.limit);
        let next = all.last().filter(|_| more).map(|info| info.id.to_string());
        let artifacts = all.into_iter().map(ArtifactRow::from).collect();
        Ok(ListedArtifacts { artifacts, total, next })
    }

    async fn on_read(
        self: Arc<Self>,
        cx: CallCx,
        input: ReadArtifact,
    ) -> Result<ArtifactPart, ToolError> {
        let open = self.open(artifact_id(&input.uri)?, self.caller(&cx)).await?;
        let bytes = open.info.bytes;
        if input.offset > bytes {
            let message = format!("`offset` is behind the end: the artifact has {bytes} bytes");
            return Err(ToolError::new(
                hivekeep_kernel::Layer::Actor,
                codes::INVALID_INPUT,
                message,
            ));
        }
        let ArtifactText { offset, text, next } = open.text(input.offset, input.length).await?;
        Ok(ArtifactPart { text, offset, next_offset: next, bytes })
    }

    async fn on_delete(
        self: Arc<Self>,
        cx: CallCx,
        input: DeleteArtifact,
    ) -> Result<ArtifactRow, ToolError> {
        let removed = self.remove(artifact_id(&input.uri)?, self.caller(&cx)).await?;
        Ok(removed.into())
    }
}
