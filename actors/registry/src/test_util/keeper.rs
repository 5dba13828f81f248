//! A store of large results in memory, which refuses as often as it is told.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use async_trait::async_trait;
use hivekeep_kernel::{
    Layer, ToolError,
    ports::{KeptResult, LargeResult, ResultKeeper},
};

/// Keeper of results in memory.
#[derive(Debug, Default)]
pub struct ToyKeeper {
    /// Number of further results that are refused.
    pub refuses: AtomicU32,
    /// Results that were kept, in order.
    pub kept: Mutex<Vec<LargeResult>>,
}

#[async_trait]
impl ResultKeeper for ToyKeeper {
    fn reader(&self) -> &'static str {
        "toy_echo"
    }

    async fn keep(&self, result: LargeResult) -> Result<KeptResult, ToolError> {
        let less = |left: u32| left.checked_sub(1);
        if self.refuses.fetch_update(SeqCst, SeqCst, less).is_ok() {
            return Err(ToolError::foreign(Layer::Quota, "toys_full", "the box is full"));
        }
        let bytes = result.value.to_string().len() as u64;
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        Ok(KeptResult {
            uri: "toy://kept".to_owned(),
            bytes,
            mime_type: "application/json",
            sha256: "0".repeat(64),
            expires_at: chrono::DateTime::UNIX_EPOCH,
        })
    }
}
