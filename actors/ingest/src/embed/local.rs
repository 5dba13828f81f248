//! Embedding model in the daemon: a static one in model2vec's format, or an encoder of BERT's architecture. Loaded
//! once, by the first use.
//!
//! Texts are done in slices on threads for blocking work, of all calls so many at a time as the configuration
//! says; a call has no more slices under way than that, so that a question does not wait for an ingestion's batch.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use futures::{StreamExt, TryStreamExt, stream};
use hivekeep_encoder::{BertEncoder, is_bert};
use hivekeep_kernel::{Layer, ToolError, codes as common};
use model2vec_rs::model::StaticModel;
use tokio::{
    sync::{OnceCell, Semaphore},
    task::spawn_blocking,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{Embedded, failed};
use crate::LocalOptions;

/// Largest file of a model.
const MAX_FILE_BYTES: u64 = 1024 * 1024 * 1024;
/// Texts of a slice of an encoder; a static model is done with a batch before a thread has begun.
const SLICE: usize = 8;

/// Model in a folder.
pub(crate) struct LocalModel {
    folder: PathBuf,
    threads: usize,
    running: Arc<Semaphore>,
    loaded: OnceCell<Loaded>,
}

struct Loaded {
    name: String,
    dimension: usize,
    encoder: Arc<Encoder>,
}

enum Encoder {
    Static(StaticModel),
    Bert(Box<BertEncoder>),
}

impl Encoder {
    /// Vectors of texts, as long as they are wanted.
    fn encode(&self, texts: &[String], over: &CancellationToken) -> Result<Vec<Vec<f32>>, String> {
        let wanted = || match over.is_cancelled() {
            true => Err("nobody waits for it".to_owned()),
            false => Ok(()),
        };
        match self {
            Self::Static(model) => wanted().map(|()| model.encode(texts)),
            Self::Bert(model) => {
                texts.iter().map(|text| wanted().and_then(|()| model.encode(text))).collect()
            }
        }
    }
}

impl LocalModel {
    /// Model of the configured folder, if there is one. Nothing is read yet.
    pub(crate) fn new(options: &LocalOptions) -> Option<Self> {
        let folder = options.folder.clone()?;
        let processors = || thread::available_parallelism().map_or(1, |all| all.get() / 2).max(1);
        let threads = options.threads.map_or_else(processors, |threads| threads.get());
        let running = Arc::new(Semaphore::new(threads));
        Some(Self { folder, threads, running, loaded: OnceCell::new() })
    }

    /// Name with a mark of its weights: other weights in the same folder are another model.
    ///
    /// # Errors
    /// `embedder_failed`.
    pub(crate) async fn name(&self) -> Result<String, ToolError> {
        Ok(self.loaded().await?.name.clone())
    }

    /// Vectors of texts, in their order.
    ///
    /// # Errors
    /// `embedder_failed`, `deadline_exceeded`.
    pub(crate) async fn embed(
        &self,
        texts: Vec<String>,
        deadline: Instant,
    ) -> Result<Embedded, ToolError> {
        let loaded = self.loaded().await?;
        let over = CancellationToken::new();
        let _dropped_with_the_call = over.clone().drop_guard();
        let slice = match &*loaded.encoder {
            Encoder::Static(_) => texts.len().max(1),
            Encoder::Bert(_) => SLICE,
        };
        let texts: Vec<Vec<String>> = texts.chunks(slice).map(<[_]>::to_vec).collect();
        let slices = texts.into_iter().map(|texts| EncodedSlice {
            texts,
            encoder: loaded.encoder.clone(),
            running: self.running.clone(),
            over: over.clone(),
        });
        let vectors =
            stream::iter(slices.map(EncodedSlice::made)).buffered(self.threads).try_concat();
        let vectors = timeout_at(deadline, vectors).await.map_err(|_| {
            let message = "the embedding model took longer than the call may";
            ToolError::new(Layer::Actor, common::DEADLINE_EXCEEDED, message)
        })??;
        let Loaded { name, dimension, .. } = loaded;
        Ok(Embedded { model: name.clone(), dimension: *dimension, vectors })
    }

    async fn loaded(&self) -> Result<&Loaded, ToolError> {
        let load = async || {
            let folder = self.folder.clone();
            let loaded = spawn_blocking(move || load(&folder)).await;
            loaded.map_err(|panic| failed(panic.to_string()))?.map_err(failed)
        };
        self.loaded.get_or_try_init(load).await
    }
}

/// Texts on their way to a thread.
struct EncodedSlice {
    texts: Vec<String>,
    encoder: Arc<Encoder>,
    running: Arc<Semaphore>,
    over: CancellationToken,
}

impl EncodedSlice {
    async fn made(self) -> Result<Vec<Vec<f32>>, ToolError> {
        let Self { texts, encoder, running, over } = self;
        let permit = running.acquire_owned().await.map_err(|closed| failed(closed.to_string()))?;
        let made = spawn_blocking(move || {
            // Held by the thread: a call that is dropped makes no room before it ends.
            let _permit = permit;
            encoder.encode(&texts, &over)
        });
        made.await.map_err(|panic| failed(panic.to_string()))?.map_err(failed)
    }
}

fn load(configured: &Path) -> Result<Loaded, String> {
    let folder = &snapshot(configured)?;
    let shown = folder.display();
    let weights = folder.join("model.safetensors");
    for name in ["tokenizer.json", "config.json", "model.safetensors"] {
        let metadata =
            fs::metadata(folder.join(name)).map_err(|error| format!("{shown}/{name}: {error}"))?;
        if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
            return Err(format!("{shown}/{name} is not a file, or too large"));
        }
    }
    let hash = fs::File::open(&weights).and_then(|file| {
        let mut hash = blake3::Hasher::new();
        hash.update_reader(file)?;
        Ok(hash.finalize().to_hex())
    });
    let hash = hash.map_err(|error| format!("{}: {error}", weights.display()))?;
    let (encoder, dimension) = if is_bert(folder)? {
        let model = BertEncoder::load(folder)?;
        let dimension = model.dimension();
        (Encoder::Bert(Box::new(model)), dimension)
    } else {
        let model = StaticModel::from_pretrained(folder, None, None, None)
            .map_err(|error| format!("{shown}: {error:#}"))?;
        let dimension = model.dim();
        (Encoder::Static(model), dimension)
    };
    let base = configured.file_name().map_or_else(|| "model".into(), |it| it.to_string_lossy());
    let name = format!("local/{base}@{}", &hash[..8]);
    Ok(Loaded { name, dimension, encoder: Arc::new(encoder) })
}

/// Folder with a model's files: in a hub's cache it is that of the revision that `refs/main` names.
fn snapshot(folder: &Path) -> Result<PathBuf, String> {
    let main = folder.join("refs/main");
    if folder.join("config.json").exists() || !main.exists() {
        return Ok(folder.to_owned());
    }
    let revision = fs::read_to_string(&main).map_err(|e| format!("{}: {e}", main.display()))?;
    let revision = revision.trim();
    match !revision.is_empty() && revision.bytes().all(|letter| letter.is_ascii_alphanumeric()) {
        true => Ok(folder.join("snapshots").join(revision)),
        false => Err(format!("{} names no revision", main.display())),
    }
}

#[cfg(test)]
mod tests;
