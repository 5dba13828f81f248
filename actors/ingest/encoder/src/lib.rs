//! BERT encoder for sentences: tokens, transformer layers, the mean of their outputs as a vector of length 1.
//!
//! ```text
//! text ─▶ tokens, cut off ─▶ embeddings ─▶ layer* ─▶ mean (or first token) ─▶ length 1
//!                                            └ attention, added, normed; two linear maps, added, normed
//! ```
//! Forward pass of the published architecture on one processor, in f32. Each text is encoded alone, so that
//! none is padded; texts run in parallel, not the parts of one.

mod files;
mod layer;

use std::{fs, path::Path};

use ndarray::{Array2, Axis, Slice};
use tokenizers::{Tokenizer, TruncationParams};

pub use files::is_bert;
use files::{BertSettings, Pooling, Weights};
use layer::{Layer, LayerNorm};

/// Encoder in memory. Read-only.
pub struct BertEncoder {
    tokenizer: Tokenizer,
    pooling: Pooling,
    words: Array2<f32>,
    positions: Array2<f32>,
    /// Segment embeddings; a text has one segment.
    segment: Array2<f32>,
    norm: LayerNorm,
    layers: Vec<Layer>,
}

impl BertEncoder {
    /// Reads a folder in the form of sentence-transformers.
    ///
    /// # Errors
    /// The reason why the folder holds no model that is understood.
    pub fn load(folder: &Path) -> Result<Self, String> {
        let settings = BertSettings::read(folder)?;
        let path = folder.join("model.safetensors");
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let weights =
            Weights::new(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::build(folder, &settings, &weights)
    }

    fn build(
        folder: &Path,
        settings: &BertSettings,
        weights: &Weights<'_>,
    ) -> Result<Self, String> {
        let (hidden, vocabulary) = (settings.hidden_size, settings.vocab_size);
        let words = weights.matrix("embeddings.word_embeddings.weight", (vocabulary, hidden))?;
        let positions = (settings.max_position_embeddings, hidden);
        let layer = |at| Layer::read(&weights.below(&format!("encoder.layer.{at}")), settings);
        Ok(Self {
            tokenizer: tokenizer(folder, settings)?,
            pooling: settings.pooling,
            words,
            positions: weights.matrix("embeddings.position_embeddings.weight", positions)?,
            segment: weights.matrix(
                "embeddings.token_type_embeddings.weight",
                (settings.type_vocab_size, hidden),
            )?,
            norm: LayerNorm::read(&weights.below("embeddings.LayerNorm"), settings)?,
            layers: (0..settings.num_hidden_layers).map(layer).collect::<Result<_, _>>()?,
        })
    }

    /// Length of the vectors.
    pub fn dimension(&self) -> usize {
        self.words.ncols()
    }

    /// Vector of a text.
    ///
    /// # Errors
    /// For a text that the tokenizer refuses.
    pub fn encode(&self, text: &str) -> Result<Vec<f32>, String> {
        let tokens = self.tokenizer.encode(text, true).map_err(|error| error.to_string())?;
        let ids = tokens.get_ids();
        if ids.is_empty() {
            return Ok(vec![0.0; self.dimension()]);
        }
        let mut state = self.positions.slice_axis(Axis(0), Slice::from(..ids.len())).to_owned();
        for (mut row, id) in state.rows_mut().into_iter().zip(ids) {
            row += &self.words.row(*id as usize);
            row += &self.segment.row(0);
        }
        self.norm.apply(&mut state);
        for layer in &self.layers {
            state = layer.apply(state);
        }
        let pooled = match self.pooling {
            Pooling::Mean => state.sum_axis(Axis(0)) / ids.len() as f32,
            Pooling::FirstToken => state.row(0).to_owned(),
        };
        let length = pooled.dot(&pooled).sqrt().max(f32::MIN_POSITIVE);
        Ok((pooled / length).to_vec())
    }
}

/// Tokenizer that truncates texts to the model's length, and makes no id without a row in the model.
fn tokenizer(folder: &Path, settings: &BertSettings) -> Result<Tokenizer, String> {
    let path = folder.join("tokenizer.json");
    let wrong = |why: String| format!("{}: {why}", path.display());
    let mut tokenizer = Tokenizer::from_file(&path).map_err(|error| wrong(error.to_string()))?;
    let vocabulary = tokenizer.get_vocab(true);
    if vocabulary.values().any(|id| *id as usize >= settings.vocab_size) {
        return Err(wrong("it has tokens that the model has no row for".to_owned()));
    }
    let truncation = TruncationParams { max_length: settings.max_tokens, ..Default::default() };
    tokenizer.with_truncation(Some(truncation)).map_err(|error| wrong(error.to_string()))?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}
