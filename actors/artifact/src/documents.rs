//! Document port: artifacts as `hivekeep://artifacts/art_...`, with `offset` and `length` for a range.

use async_trait::async_trait;
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::{
    documents::{
        Changed, Document, DocumentBody, DocumentListing, Documents, Page, Refusal, Stamp,
        StampResult, Template, arguments, decode,
    },
    names::{KnownNames, Names},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use crate::{
    Artifacts, MIME_TYPE, OpenArtifact, artifact_id, codes,
    info::{URI_TEMPLATE, UriRange, artifact_uri, range_of},
    tools,
};

/// Tool that lists them.
const LISTER: &str = "artifact_list";
/// Most that it lists at once.
const MOST_LISTED: usize = 200;

#[derive(Deserialize)]
struct Listed {
    artifacts: Vec<Row>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Row {
    uri: String,
    tool: String,
    bytes: u64,
}

#[derive(Deserialize)]
struct Part {
    text: String,
    offset: u64,
    next_offset: Option<u64>,
    bytes: u64,
}

impl Documents for Artifacts {
    fn tool(&self) -> &'static str {
        tools::READER
    }

    fn enabled(&self) -> bool {
        Artifacts::enabled(self)
    }

    fn template(&self) -> Template {
        Template {
            uri: URI_TEMPLATE,
            name: "artifact",
            title: "Results that were too large for their answers",
            description: "A kept result as JSON; offset and length, in bytes, read a range of it",
            mime_type: MIME_TYPE,
            variables: &[("id", "artifact")],
        }
    }

    fn listing(&self) -> Option<&dyn DocumentListing> {
        Some(self)
    }

    fn read_args(&self, uri: &str) -> Result<Map<String, Value>, ToolError> {
        let UriRange { id, offset, length } = range_of(uri)?;
        let most = OpenArtifact::MOST_BYTES as u64;
        // A range may end where it must. Without one the whole is meant, see `text`.
        let length = length.map_or(most, |length| length.clamp(4, most));
        Ok(arguments(json!({ "uri": id, "offset": offset.unwrap_or(0), "length": length })))
    }

    fn body(&self, uri: &str, answer: Value) -> Result<DocumentBody, ToolError> {
        let Part { text, offset, next_offset, bytes } = decode(answer)?;
        let UriRange { id, offset: asked, length } = range_of(uri)?;
        let Some(next) = next_offset.filter(|_| asked.is_none() && length.is_none()) else {
            return Ok(text.into());
        };
        let message = format!("the artifact has {bytes} bytes, more than are read at once");
        let root = artifact_uri(id);
        let part = next - offset;
        Err(ToolError::new(Layer::Result, codes::TOO_LARGE, message)
            .next(format!("read it in ranges: {root}?offset=0&length={part}, then offset={next}")))
    }

    fn refusal(&self, error: &ToolError) -> Refusal {
        match error {
            error if error.is(codes::ARTIFACT_NOT_FOUND) => Refusal::Missing,
            error if error.is_any(&[codes::INVALID_INPUT, codes::TOO_LARGE]) => Refusal::Invalid,
            _ => Refusal::Failed,
        }
    }
}

#[async_trait]
impl DocumentListing for Artifacts {
    fn list_tool(&self) -> &'static str {
        LISTER
    }

    fn list_args(&self, after: Option<&str>, limit: usize) -> Map<String, Value> {
        arguments(json!({ "after": after, "limit": limit }))
    }

    fn listed(&self, answer: Value) -> Result<Page, ToolError> {
        let Listed { artifacts, next } = decode(answer)?;
        let document = |row: Row| Document {
            name: format!("result of {}", row.tool),
            uri: row.uri,
            mime_type: MIME_TYPE,
            size: row.bytes,
        };
        Ok(Page { documents: artifacts.into_iter().map(document).collect(), next })
    }

    fn changes(&self) -> broadcast::Receiver<Changed> {
        Artifacts::changes(self)
    }

    /// An artifact never changes, and who asks is not known here: each is as if it were there.
    async fn stamps(&self, uris: Vec<String>) -> Result<Vec<StampResult>, ToolError> {
        let stamp = |uri: &String| range_of(uri).map(|_| Ok(Some(Stamp([0; 4]))));
        uris.iter().map(stamp).collect()
    }
}

impl Names for Artifacts {
    fn kind(&self) -> &'static str {
        "artifact"
    }

    fn tool(&self) -> &'static str {
        LISTER
    }

    fn args(&self) -> Map<String, Value> {
        self.list_args(None, MOST_LISTED)
    }

    fn known(&self, answer: Value) -> Result<KnownNames, ToolError> {
        let Listed { artifacts, next } = decode(answer)?;
        let id = |row: Row| Ok(artifact_id(&row.uri)?.to_string());
        let names = artifacts.into_iter().map(id).collect::<Result<_, ToolError>>()?;
        Ok(KnownNames { names, complete: next.is_none() })
    }
}
