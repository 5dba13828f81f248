//! Bounds of a pull.

use std::time::Duration;

/// Maximum size of a manifest, an index, a configuration and an answer with a token, as registries
/// have it.
pub(crate) const DOCUMENT_BYTES: u64 = 4 << 20;
/// Maximum size of the extension records of one entry of a layer.
pub(crate) const EXTENSION_BYTES: u64 = 1 << 20;
/// Maximum length of a path in a layer.
pub(crate) const PATH_BYTES: usize = 4095;
/// Maximum length of a path in the tree, where links of the layers lead deeper than their paths.
pub(crate) const TREE_PATH_BYTES: usize = 2048;
/// Maximum number of folders that an entry is in.
pub(crate) const DEPTH: usize = 128;

/// Configured bounds of one image.
#[derive(Debug, Clone, Copy)]
pub struct PullLimits {
    /// Number of layers.
    pub layers: usize,
    /// Sum of the layers' bytes as they are stored.
    pub compressed_bytes: u64,
    /// Sum of the layers' bytes as archives.
    pub unpacked_bytes: u64,
    /// Number of entries of all layers.
    pub entries: u64,
    /// Time without a byte.
    pub stall: Duration,
}
