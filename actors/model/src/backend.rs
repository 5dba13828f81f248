//! Backend of a provider: an API over HTTP, or a script.

use std::time::Duration;

use hivekeep_ports::{ModelRequest, RelayRequest};

use crate::{
    ModelOptions, ModelProviderOptions,
    failure::{FailureKind, WireFailure},
    scripted::{self, Scripted},
    transport::{ModelTransport, RelaySink, RelayedAnswer},
    wire::{self, Sink, WireAsk, WireEnd, WireVectors},
};

/// Backend of one provider.
pub(crate) enum Backend {
    Http(Box<ModelTransport>),
    Scripted(Scripted),
    /// Not usable as configured, for this reason.
    Unusable(String),
}

impl Backend {
    /// Makes the backend from a provider's options. Reads certificates of the host.
    pub(crate) async fn new(options: &ModelProviderOptions) -> Self {
        let Some(wire) = wire::of(options.kind) else { return Self::Scripted(Scripted::default()) };
        match ModelTransport::new(wire, options.clone()).await {
            Ok(transport) => Self::Http(Box::new(transport)),
            Err(why) => Self::Unusable(why),
        }
    }

    /// Sends a question once.
    pub(crate) async fn generate(
        &self,
        options: &ModelProviderOptions,
        ask: &WireAsk<'_>,
        sink: &mut Sink,
    ) -> Result<WireEnd, WireFailure> {
        match self {
            Self::Http(transport) => transport.generate(ask, sink).await,
            Self::Scripted(scripted) => {
                let script = options.script.as_deref().unwrap_or(std::path::Path::new(""));
                scripted.generate(script, ask.request, sink).await
            }
            Self::Unusable(why) => Err(unusable(why)),
        }
    }

    /// Passes a program's request on, once.
    pub(crate) async fn relay(
        &self,
        request: &RelayRequest,
        sink: &mut RelaySink,
    ) -> Result<RelayedAnswer, WireFailure> {
        match self {
            Self::Http(transport) => transport.relay(request, sink).await,
            Self::Scripted(_) => {
                let why = "a scripted provider speaks no API of its own";
                Err(WireFailure::new(FailureKind::Unsupported, why))
            }
            Self::Unusable(why) => Err(unusable(why)),
        }
    }

    /// Embeds texts once, and checks the answer.
    pub(crate) async fn embed(
        &self,
        model: &str,
        options: &ModelOptions,
        texts: &[String],
    ) -> Result<WireVectors, WireFailure> {
        let (vectors, tokens) = match self {
            Self::Http(transport) => transport.embed(model, texts).await?,
            Self::Scripted(_) => scripted::vectors(options.dimension, texts),
            Self::Unusable(why) => return Err(unusable(why)),
        };
        let dimension = options.dimension.or(vectors.first().map(Vec::len)).unwrap_or_default();
        if vectors.len() != texts.len() {
            let (sent, came) = (texts.len(), vectors.len());
            return Err(WireFailure::broken(format!("{came} vectors came for {sent} texts")));
        }
        if dimension == 0 || vectors.iter().any(|vector| vector.len() != dimension) {
            return Err(WireFailure::broken(format!("a vector has not {dimension} numbers")));
        }
        if vectors.iter().flatten().any(|value| !value.is_finite()) {
            return Err(WireFailure::broken("a vector has a number that is not finite"));
        }
        Ok((vectors, tokens))
    }

    /// Names of the models that the provider lists; `None` if it has no list.
    pub(crate) async fn list(&self, limit: Duration) -> Result<Option<Vec<String>>, WireFailure> {
        match self {
            Self::Http(transport) => transport.list(limit).await.map(Some),
            Self::Scripted(_) => Ok(None),
            Self::Unusable(why) => Err(unusable(why)),
        }
    }
}

fn unusable(why: &str) -> WireFailure {
    WireFailure::new(FailureKind::Unavailable, why)
}

/// A question, the same for each attempt.
pub(crate) struct ModelQuestion {
    pub(crate) request: ModelRequest,
    pub(crate) model: String,
    pub(crate) max_tokens: u32,
}

impl ModelQuestion {
    pub(crate) fn ask(&self) -> WireAsk<'_> {
        WireAsk { request: &self.request, model: &self.model, max_tokens: self.max_tokens }
    }
}
