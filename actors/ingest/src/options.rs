//! Section `[ingest]`.

use std::{num::NonZeroUsize, path::PathBuf};

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::search::Fusion;

/// Name of the option that bounds what runs.
pub(crate) const MAX_RUNNING: &str = "ingest.max_running";

/// Ingestions of folders, and retrieval from what they wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Model that embeds, as `model.alias` or `NAME/MODEL`, unless `ingest.local.folder` is set.
    pub model: String,
    /// Model in the daemon itself.
    pub local: LocalOptions,
    /// Qdrant server. Without a `url` collections are files of the daemon.
    pub qdrant: QdrantOptions,
    /// How vectors and words become one order, in mode hybrid.
    pub fusion: FusionOptions,
    /// Size of a passage in bytes.
    #[schemars(range(min = 100, max = 8000))]
    pub chunk_bytes: usize,
    /// Characters of the passage before that are repeated.
    pub overlap_chars: usize,
    /// Most files of an ingestion.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_files: usize,
    /// Largest file; larger ones are told as failed.
    #[schemars(range(min = 1, max = 16_384))]
    pub max_file_kb: usize,
    /// Largest PDF.
    #[schemars(range(min = 1, max = 65_536))]
    pub max_pdf_kb: usize,
    /// Most passages of a collection.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_chunks: usize,
    /// Most collections of a user.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_collections: usize,
    /// Ingestions that run at a time, of one user at most half of them.
    #[schemars(range(min = 1, max = 64))]
    pub max_running: usize,
    /// Collections that are watched at a time, of one user at most half of them.
    #[schemars(range(max = 256))]
    pub max_watched: usize,
    /// Time between two looks at what is watched in a volume or a workspace, and at a folder of the host that
    /// tells of no changes.
    #[schemars(range(min = 1, max = 86_400))]
    pub poll_secs: u64,
    /// Time between two looks at a watched folder of the host that tells of its changes: in case one was missed.
    #[schemars(range(min = 1, max = 86_400))]
    pub full_pass_secs: u64,
    /// Memory of the collections that are files of the daemon; those used least are read anew when needed.
    #[schemars(range(min = 16, max = 65_536))]
    pub memory_mb: usize,
}

/// Embedding model in the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LocalOptions {
    /// Folder with `tokenizer.json`, `model.safetensors` and `config.json` of a static model in model2vec's
    /// format or of a sentence encoder of BERT's architecture (as MiniLM); or that of a model in the cache of a
    /// hub. Nothing is downloaded.
    pub folder: Option<PathBuf>,
    /// Threads that embed. Unset: half of the processors that the daemon may use, at least 1.
    #[schemars(range(min = 1, max = 512))]
    pub threads: Option<NonZeroUsize>,
}

/// How vectors and words become one order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FusionOptions {
    /// `scores`: the sum of cosine similarity and BM25 as a part of the best one's. `ranks`: of reciprocal ranks.
    pub by: Fusion,
    /// Weight of a vector's score; words have the weight 1. A call may say otherwise.
    pub vector_weight: f32,
}

impl Default for FusionOptions {
    fn default() -> Self {
        Self { by: Fusion::Scores, vector_weight: 0.5 }
    }
}

/// Qdrant server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QdrantOptions {
    /// REST address, as `http://localhost:6333`.
    pub url: Option<String>,
    /// File with the API key, read for each request.
    pub key_file: Option<PathBuf>,
    /// File with more authorities (PEM).
    pub ca_file: Option<PathBuf>,
    /// Time of a request.
    #[schemars(range(min = 1, max = 600))]
    pub timeout_secs: u64,
}

impl Default for QdrantOptions {
    fn default() -> Self {
        Self { url: None, key_file: None, ca_file: None, timeout_secs: 30 }
    }
}

impl QdrantOptions {
    /// Address of the server, if there is one.
    ///
    /// # Errors
    /// The reason why it is not valid.
    pub(crate) fn address(&self) -> Result<Option<Url>, String> {
        let Some(text) = &self.url else { return Ok(None) };
        let wrong =
            || "must be an http or https URL without a user, a query or a fragment".to_owned();
        let url: Url = text.parse().map_err(|_| wrong())?;
        let plain = url.username().is_empty() && url.query().is_none() && url.fragment().is_none();
        let web =
            matches!(url.scheme(), "http" | "https") && url.has_host() && url.password().is_none();
        if plain && web { Ok(Some(url)) } else { Err(wrong()) }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            model: "embed".to_owned(),
            local: LocalOptions::default(),
            qdrant: QdrantOptions::default(),
            fusion: FusionOptions::default(),
            chunk_bytes: 500,
            overlap_chars: 50,
            max_files: 10_000,
            max_file_kb: 1_024,
            max_pdf_kb: 20_480,
            max_chunks: 200_000,
            max_collections: 64,
            max_running: 4,
            max_watched: 16,
            poll_secs: 30,
            full_pass_secs: 900,
            memory_mb: 512,
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if self.overlap_chars > self.chunk_bytes / 2 {
            wrong.push(("overlap_chars", "must be at most half of `chunk_bytes`".to_owned()));
        }
        if !(0.0..=100.0).contains(&self.fusion.vector_weight) {
            wrong.push(("fusion", "vector_weight: must be between 0 and 100".to_owned()));
        }
        if self.model.is_empty() {
            wrong.push(("model", "must not be empty".to_owned()));
        }
        if let Err(why) = self.qdrant.address() {
            wrong.push(("qdrant", format!("url: {why}")));
        }
        let files = [&self.qdrant.key_file, &self.qdrant.ca_file];
        if files.into_iter().flatten().any(|path| !path.is_absolute()) {
            wrong.push(("qdrant", "a file must be an absolute path".to_owned()));
        }
        if self.local.folder.as_ref().is_some_and(|path| !path.is_absolute()) {
            wrong.push(("local", "folder: must be an absolute path".to_owned()));
        }
        wrong
    }
}
