//! Reader of one artifact: ranges of bytes or of text, never the whole in memory.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use hivekeep_kernel::{Layer, ToolError};

use crate::{
    artifacts::{failed, lost},
    codes,
    info::ArtifactInfo,
};

/// Artifact that is open for reading. It stays readable when it is removed or expires meanwhile.
/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct OpenArtifact {
    /// Description of the artifact.
    pub info: Arc<ArtifactInfo>,
    file: Arc<File>,
}

/// Part of an artifact, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactText {
    /// Position of its first byte: the one that was asked for, or the next at which a character begins.
    pub offset: u64,
    /// The text.
    pub text: String,
    /// Position to go on from; `None` at the end.
    pub next: Option<u64>,
}

impl OpenArtifact {
    /// Most bytes that are read at once.
    pub const MOST_BYTES: usize = 1024 * 1024;

    pub(crate) fn new(info: ArtifactInfo, file: File) -> Self {
        Self { info: Arc::new(info), file: Arc::new(file) }
    }

    /// Reads at most `length` bytes, and at most [`Self::MOST_BYTES`], from a position on; none behind
    /// the end.
    ///
    /// # Errors
    /// `artifact_failed`.
    pub async fn bytes(&self, offset: u64, length: usize) -> Result<Vec<u8>, ToolError> {
        let left = usize::try_from(self.info.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(left).min(Self::MOST_BYTES)];
        let file = self.file.clone();
        let read = move || -> io::Result<_> {
            file.read_exact_at(&mut bytes, offset)?;
            Ok(bytes)
        };
        tokio::task::spawn_blocking(read).await.map_err(lost)?.map_err(failed)
    }

    /// Reads the characters that lie whole within such a range.
    ///
    /// # Errors
    /// `artifact_failed`; `invalid_input` for a range in which no character is whole.
    pub async fn text(&self, offset: u64, length: usize) -> Result<ArtifactText, ToolError> {
        let mut bytes = self.bytes(offset, length).await?;
        let inside = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        let skipped = bytes.iter().take(3).take_while(inside).count();
        bytes.drain(..skipped);
        let offset = offset + skipped as u64;
        if let Err(error) = std::str::from_utf8(&bytes) {
            if error.error_len().is_some() {
                let message = format!("{} is not the text that it was", self.info.id);
                return Err(ToolError::new(Layer::Store, codes::ARTIFACT_FAILED, message));
            }
            bytes.truncate(error.valid_up_to());
        }
        let end = offset + bytes.len() as u64;
        let next = (end < self.info.bytes).then_some(end);
        if bytes.is_empty() && next.is_some() {
            return Err(ToolError::invalid("no character is whole in this range")
                .next("ask for at least 4 bytes more"));
        }
        let text =
            String::from_utf8(bytes).map_err(|error| ToolError::internal(error.to_string()))?;
        Ok(ArtifactText { offset, text, next })
    }
}
