//! Refusals that several tools share.

use hivekeep_kernel::{Layer, ToolError};

use crate::codes;

/// There is no such collection of the user's.
pub(crate) fn no_collection(name: &str) -> ToolError {
    ToolError::not_found(Layer::Actor, codes::COLLECTION_NOT_FOUND, "collection", name)
        .next("rag_collections lists yours; rag_ingest makes one")
}
