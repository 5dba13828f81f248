//! Embedder: a model in the daemon, or a model of the operator's providers.

mod local;

use std::sync::Arc;

use hivekeep_kernel::{Layer, SessionId, ToolError};
use hivekeep_ports::{EmbedRequest, ModelUse, Models};
use tokio::time::Instant;

pub(crate) use local::LocalModel;

use crate::{Options, codes};

/// Vectors of texts, and the model that made them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Embedded {
    pub(crate) model: String,
    pub(crate) dimension: usize,
    pub(crate) vectors: Vec<Vec<f32>>,
}

/// Source of the vectors of texts.
pub(crate) enum Embedder {
    /// Model in the daemon.
    Local(LocalModel),
    /// Model of a provider, by the name that the operator set.
    Provider(Arc<dyn Models>, String),
    /// Nothing: this daemon has no models.
    Nothing,
}

impl Embedder {
    /// Embedder that the configuration sets.
    pub(crate) fn new(options: &Options, models: Option<Arc<dyn Models>>) -> Self {
        match (LocalModel::new(&options.local), models) {
            (Some(model), _) => Self::Local(model),
            (None, Some(models)) => Self::Provider(models, options.model.clone()),
            (None, None) => Self::Nothing,
        }
    }

    /// Names of the models that may answer.
    ///
    /// # Errors
    /// `embedder_not_configured`; `embedder_failed` for a local model that cannot be read.
    pub(crate) async fn names(&self) -> Result<Vec<String>, ToolError> {
        match self {
            Self::Local(model) => Ok(vec![model.name().await?]),
            Self::Provider(models, name) => {
                let sources = models.resolve(name, ModelUse::Embed).map_err(|error| {
                    let message = format!(
                        "no model embeds: `ingest.model` is `{name}`, and {}",
                        error.message
                    );
                    not_configured(message)
                })?;
                Ok(sources.iter().map(ToString::to_string).collect())
            }
            Self::Nothing => {
                Err(not_configured("no model embeds, and none is configured".to_owned()))
            }
        }
    }

    /// Vectors of texts, in their order.
    ///
    /// # Errors
    /// Those of [`Self::names`] and of the model.
    pub(crate) async fn embed(
        &self,
        session: SessionId,
        texts: Vec<String>,
        deadline: Instant,
    ) -> Result<Embedded, ToolError> {
        let count = texts.len();
        let embedded = match self {
            Self::Local(model) => model.embed(texts, deadline).await?,
            Self::Provider(models, name) => {
                self.names().await?;
                let request = EmbedRequest { session, model: name.clone(), texts, deadline };
                let made = models.embed(request).await?;
                Embedded {
                    model: made.source.to_string(),
                    dimension: made.dimension,
                    vectors: made.vectors,
                }
            }
            Self::Nothing => self.names().await.map(|_| unreachable!("it has none"))?,
        };
        let is_vector = |it: &Vec<f32>| {
            it.len() == embedded.dimension && it.iter().all(|part| part.is_finite())
        };
        if embedded.vectors.len() != count || !embedded.vectors.iter().all(is_vector) {
            return Err(failed(
                "its vectors are not one a text, of one length, of numbers".to_owned(),
            ));
        }
        Ok(embedded)
    }
}

fn not_configured(message: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::EMBEDDER_NOT_CONFIGURED, message).next(
        "the operator sets `model.alias.embed.models` to a model of a provider with `purpose = \"embed\"`, or \
         `ingest.local.folder`",
    )
}

fn failed(why: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::EMBEDDER_FAILED, format!("the embedding model: {why}"))
        .next("`hivekeep check` looks at the model's folder")
}

/// Refuses vectors that cannot be compared with those of a collection.
///
/// # Errors
/// `embedder_mismatch`.
pub(crate) fn same(
    collection: &str,
    kept: (&str, usize),
    made: &Embedded,
) -> Result<(), ToolError> {
    if kept == (made.model.as_str(), made.dimension) {
        return Ok(());
    }
    let message = format!(
        "the collection `{collection}` has vectors of {} with {} parts, and {} makes {}",
        kept.0, kept.1, made.model, made.dimension
    );
    Err(mismatch(message))
}

/// Refuses a model before it is asked.
///
/// # Errors
/// `embedder_mismatch`, if none of the names is the collection's.
pub(crate) fn may_be_same(collection: &str, kept: &str, names: &[String]) -> Result<(), ToolError> {
    if names.iter().any(|name| name == kept) {
        return Ok(());
    }
    let message = format!(
        "the collection `{collection}` has vectors of {kept}, and now {} embeds",
        names.join(" or ")
    );
    Err(mismatch(message))
}

fn mismatch(message: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::EMBEDDER_MISMATCH, message)
        .next("use the collection's model, or rag_ingest with `recreate` true")
}
