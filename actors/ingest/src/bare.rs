//! Engine of a collection alone: its files opened and searched in place, without a daemon. A measurement compares
//! a daemon's answers with it.

use std::{fs, path::Path, time::Duration};

use hivekeep_kernel::ToolError;
use tokio::time::Instant;

use crate::{
    Options,
    embed::LocalModel,
    search::{self, SearchMode, SearchRequest, Weighing},
    store::{PointFilter, embedded::EmbeddedStore},
    terms,
};

const MIB: usize = 1024 * 1024;
const LIMIT: Duration = Duration::from_secs(60);

/// The one collection below a folder, and the local model that asks it.
pub struct BareCollection {
    store: EmbeddedStore,
    model: LocalModel,
    name: String,
    weighing: Weighing,
}

impl BareCollection {
    /// Opens the collection below the folder in which a daemon without a Qdrant server has its collections. Legal
    /// while nothing is ingested into it.
    ///
    /// # Errors
    /// Without a local model, and unless there is exactly one collection.
    pub fn open(folder: &Path, options: &Options) -> Result<Self, ToolError> {
        let wrong = |why: &str| ToolError::invalid(format!("{}: {why}", folder.display()));
        let entries = fs::read_dir(folder).map_err(|error| wrong(&error.to_string()))?;
        let names: Vec<_> = entries.flatten().map(|it| it.file_name()).collect();
        let [name] = &names[..] else { return Err(wrong("not one collection")) };
        let model = LocalModel::new(&options.local).ok_or_else(|| wrong("no local model"))?;
        let store = EmbeddedStore::new(folder.to_owned(), options.memory_mb * MIB);
        let (fusion, vector_weight) = (options.fusion.by, options.fusion.vector_weight);
        let name = name.to_string_lossy().into_owned();
        Ok(Self { store, model, name, weighing: Weighing { fusion, vector_weight } })
    }

    /// Asks as `rag_query` does; the number of passages that were found.
    ///
    /// # Errors
    /// Of the model or the files.
    pub async fn ask(
        &self,
        question: &str,
        mode: SearchMode,
        top_k: usize,
    ) -> Result<usize, ToolError> {
        let dense = match mode {
            SearchMode::Bm25 => Vec::new(),
            SearchMode::Hybrid | SearchMode::Vector => {
                let texts = vec![question.to_owned()];
                let made = self.model.embed(texts, Instant::now() + LIMIT).await?;
                made.vectors.into_iter().next().unwrap_or_default()
            }
        };
        let request = SearchRequest {
            mode,
            weighing: self.weighing,
            dense,
            terms: &terms::wanted(question),
            filter: PointFilter::default(),
            top_k,
            min_score: None,
        };
        Ok(search::search(&self.store, &self.name, request).await?.shown.len())
    }
}
