//! Static embedding model in the daemon, in model2vec's format. Loaded once, by the first use.

use std::{fs, path::PathBuf};

use hivekeep_kernel::ToolError;
use model2vec_rs::model::StaticModel;
use tokio::{sync::OnceCell, task::spawn_blocking};

use super::{Embedded, failed};

/// Largest file of a model.
const MAX_FILE_BYTES: u64 = 1024 * 1024 * 1024;

/// Model in a folder.
pub(crate) struct LocalModel {
    folder: PathBuf,
    loaded: OnceCell<Loaded>,
}

struct Loaded {
    name: String,
    model: StaticModel,
}

impl LocalModel {
    /// Nothing is read yet.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, loaded: OnceCell::new() }
    }

    /// Name with a mark of its weights: other weights in the same folder are another model.
    ///
    /// # Errors
    /// `embedder_failed`.
    pub(crate) async fn name(&self) -> Result<String, ToolError> {
        Ok(self.loaded().await?.name.clone())
    }

    pub(super) async fn embed(&self, texts: Vec<String>) -> Result<Embedded, ToolError> {
        let loaded = self.loaded().await?;
        let (model, name) = (loaded.model.clone(), loaded.name.clone());
        let made = spawn_blocking(move || model.encode(&texts)).await;
        let vectors = made.map_err(|panic| failed(panic.to_string()))?;
        Ok(Embedded { model: name, dimension: loaded.model.dim(), vectors })
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

fn load(folder: &std::path::Path) -> Result<Loaded, String> {
    let shown = folder.display();
    let weights = folder.join("model.safetensors");
    for name in ["tokenizer.json", "config.json", "model.safetensors"] {
        let metadata =
            fs::metadata(folder.join(name)).map_err(|error| format!("{shown}/{name}: {error}"))?;
        if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
            return Err(format!("{shown}/{name} is no file, or too large"));
        }
    }
    let hash = fs::File::open(&weights).and_then(|file| {
        let mut hash = blake3::Hasher::new();
        hash.update_reader(file)?;
        Ok(hash.finalize().to_hex())
    });
    let hash = hash.map_err(|error| format!("{}: {error}", weights.display()))?;
    let model = StaticModel::from_pretrained(folder, None, None, None)
        .map_err(|error| format!("{shown}: {error:#}"))?;
    let base = folder.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy());
    Ok(Loaded { name: format!("local/{base}@{}", &hash[..8]), model })
}
