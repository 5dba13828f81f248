//! Collector of one answer: each piece is handed on as it comes, and kept for the whole.

use hivekeep_kernel::ports::{ModelDelta, ModelToolCall};
use tokio::{sync::mpsc, time::Instant};

use crate::failure::WireFailure;

/// Where an answer goes.
pub(crate) struct Sink {
    reader: mpsc::Sender<ModelDelta>,
    pub(crate) text: String,
    pub(crate) calls: Vec<ModelToolCall>,
    /// Bytes that were handed on.
    pub(crate) bytes: usize,
    /// Time of the first piece.
    pub(crate) first: Option<Instant>,
}

impl Sink {
    pub(crate) fn new(reader: mpsc::Sender<ModelDelta>) -> Self {
        Self { reader, text: String::new(), calls: Vec::new(), bytes: 0, first: None }
    }

    /// Hands a piece on. Waits for a slow reader.
    ///
    /// # Errors
    /// When nobody reads any more.
    pub(crate) async fn take(&mut self, delta: ModelDelta) -> Result<(), WireFailure> {
        self.first.get_or_insert_with(Instant::now);
        match &delta {
            ModelDelta::Text(text) => {
                self.bytes += text.len();
                self.text.push_str(text);
            }
            ModelDelta::ToolCall(call) => {
                self.bytes += call.name.len() + call.arguments.to_string().len();
                self.calls.push(call.clone());
            }
        }
        self.reader.send(delta).await.map_err(|_| WireFailure::cancelled())
    }

    /// Waits until nobody reads any more.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let reader = self.reader.clone();
        async move { reader.closed().await }
    }
}
