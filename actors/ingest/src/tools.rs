//! Tools of the family `rag`.

mod collections;
mod ingest;
mod query;

use hivekeep_kernel::{ToolInfo, tools};

use crate::collections::Collections;
use collections::{ListedCollections, RagCollections};
use ingest::{Ingested, RagIngest};
use query::{RagAnswer, RagQuery};

/// Collection of calls that name none.
const DEFAULT_COLLECTION: &str = "hostuk-docs";
/// Time of an ingestion's call; the ingestion goes on behind it.
const INGEST_SECS: u64 = 3_600;

tools! {
    pub FAMILY: "rag" for Collections, singleton collections;
    rag_ingest: RagIngest => Ingested = Collections::on_ingest {
        title: "Ingest a folder", risk: Risk::Medium, timeout_secs: INGEST_SECS, told_by: Some("rag_collections"),
    };
    rag_query: RagQuery => RagAnswer = Collections::on_query {
        title: "Ask a collection", effect: Read,
    };
    rag_collections: RagCollections => ListedCollections = Collections::on_collections {
        title: "List collections", effect: Read,
    };
}

/// Declarations of the tools.
pub(crate) fn catalogue() -> Vec<&'static ToolInfo> {
    FAMILY.rows.iter().map(|row| &row.0).collect()
}

fn default_collection() -> String {
    DEFAULT_COLLECTION.to_owned()
}
