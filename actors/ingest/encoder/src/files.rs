//! Files of a BERT model's folder: its settings, what of them is understood, and its weights by their names, each
//! of the shape that is asked for.

use std::{fs, path::Path, rc::Rc};

use ndarray::{Array1, Array2};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Largest file of settings.
const MAX_BYTES: u64 = 1024 * 1024;

/// `config.json`, with what other files say.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct BertSettings {
    pub(super) hidden_size: usize,
    pub(super) intermediate_size: usize,
    pub(super) num_hidden_layers: usize,
    pub(super) num_attention_heads: usize,
    pub(super) vocab_size: usize,
    pub(super) max_position_embeddings: usize,
    pub(super) type_vocab_size: usize,
    pub(super) layer_norm_eps: f32,
    hidden_act: String,
    #[serde(default = "absolute")]
    position_embedding_type: String,
    /// Tokens after which a text is cut off.
    #[serde(skip)]
    pub(super) max_tokens: usize,
    #[serde(skip)]
    pub(super) pooling: Pooling,
}

/// How the states of the tokens become one vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Pooling {
    #[default]
    Mean,
    FirstToken,
}

#[derive(Deserialize)]
struct Kind {
    model_type: Option<String>,
}

#[derive(Deserialize)]
struct Sentences {
    max_seq_length: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PoolingModes {
    pooling_mode_mean_tokens: bool,
    pooling_mode_cls_token: bool,
}

fn absolute() -> String {
    "absolute".to_owned()
}

/// Whether a folder's model is of this architecture.
///
/// # Errors
/// For a `config.json` that does not read.
pub fn is_bert(folder: &Path) -> Result<bool, String> {
    let kind: Option<Kind> = read(&folder.join("config.json"))?;
    Ok(kind.and_then(|kind| kind.model_type).is_some_and(|kind| kind == "bert"))
}

impl BertSettings {
    /// # Errors
    /// For a file that does not read, and for what is not understood.
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let path = folder.join("config.json");
        let settings: Option<Self> = read(&path)?;
        let mut settings = settings.ok_or_else(|| format!("{} is not there", path.display()))?;
        let sentences: Option<Sentences> = read(&folder.join("sentence_bert_config.json"))?;
        let most = settings.max_position_embeddings;
        let wanted = sentences.and_then(|sentences| sentences.max_seq_length);
        settings.max_tokens = wanted.unwrap_or(most).min(most);
        let modes: Option<PoolingModes> = read(&folder.join("1_Pooling/config.json"))?;
        settings.pooling = match modes {
            None => Pooling::Mean,
            Some(PoolingModes {
                pooling_mode_mean_tokens: true,
                pooling_mode_cls_token: false,
            }) => Pooling::Mean,
            Some(PoolingModes {
                pooling_mode_mean_tokens: false,
                pooling_mode_cls_token: true,
            }) => Pooling::FirstToken,
            Some(_) => return Err("its pooling is neither the mean nor the first token".to_owned()),
        };
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        let heads = self.num_attention_heads;
        let bounded = (1..=48).contains(&self.num_hidden_layers)
            && (1..=64).contains(&heads)
            && (1..=8_192).contains(&self.hidden_size)
            && (1..=32_768).contains(&self.intermediate_size)
            && (8..=8_192).contains(&self.max_position_embeddings)
            && self.max_tokens >= 8
            && self.type_vocab_size > 0;
        if !bounded || !self.hidden_size.is_multiple_of(heads) {
            return Err("its sizes are not those of a model that is understood".to_owned());
        }
        if self.hidden_act != "gelu" || self.position_embedding_type != "absolute" {
            let (act, positions) = (&self.hidden_act, &self.position_embedding_type);
            return Err(format!("`{act:.20}` with `{positions:.20}` positions is not understood"));
        }
        Ok(())
    }
}

/// A file of settings; `None` if it is not there.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    let failed = |why: String| format!("{}: {why}", path.display());
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
        Ok(metadata) if metadata.len() > MAX_BYTES => return Err(failed("too large".to_owned())),
        Ok(_) => {}
    }
    let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(error.to_string()))
}

/// Weights below a name.
pub(super) struct Weights<'w> {
    file: Rc<SafeTensors<'w>>,
    above: String,
}

impl<'w> Weights<'w> {
    /// # Errors
    /// For bytes that are no such file.
    pub(super) fn new(bytes: &'w [u8]) -> Result<Self, String> {
        let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
        // Models for other tasks have the encoder below a name of its own.
        let above =
            if file.tensor("bert.embeddings.LayerNorm.bias").is_ok() { "bert." } else { "" };
        Ok(Self { file: Rc::new(file), above: above.to_owned() })
    }

    pub(super) fn below(&self, name: &str) -> Self {
        Self { file: self.file.clone(), above: format!("{}{name}.", self.above) }
    }

    /// # Errors
    /// For weights that are not there, or of another shape or form.
    pub(super) fn matrix(&self, name: &str, shape: (usize, usize)) -> Result<Array2<f32>, String> {
        let numbers = self.numbers(name, &[shape.0, shape.1])?;
        Array2::from_shape_vec(shape, numbers).map_err(|error| error.to_string())
    }

    /// # Errors
    /// As [`Self::matrix`].
    pub(super) fn vector(&self, name: &str, length: usize) -> Result<Array1<f32>, String> {
        Ok(Array1::from_vec(self.numbers(name, &[length])?))
    }

    fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let name = format!("{}{name}", self.above);
        let tensor = self.file.tensor(&name).map_err(|_| format!("`{name}` is not there"))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
            let (form, found) = (tensor.dtype(), tensor.shape());
            return Err(format!("`{name}` is {form:?} of {found:?}, not F32 of {shape:?}"));
        }
        let (numbers, _) = tensor.data().as_chunks::<4>();
        Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}
