//! Ingestions and retrieval: collections of passages, written by supervised ingestions and asked by hybrid search.
//!
//! ```text
//!  rag_ingest ─▶ collections ─▶ ingestion* (a saga): files ─▶ passages ─▶ batches ─▶ embedder ─▶ store
//!  rag_query  ─▶      └────────────────── question ─▶ embedder, terms ─▶ store ─▶ ranks fused
//! ```
//! A collection has an event-sourced log and at most one ingestion at a time. An ingestion is a reconciliation
//! of what the files say with what the store has, by ids of content and place, so it can be cut anywhere and
//! goes on without doing twice what is durable; one that watches reconciles again when its files change. The store is an exact index in files of the daemon, or a
//! Qdrant server by URL, behind one interface. Files, models and servers are not trusted: all is bounded.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod bare;
pub mod codes;
mod collections;
mod embed;
mod family;
mod html;
mod ingestion;
mod options;
mod pdf;
mod point;
mod reading;
mod search;
mod shared;
mod split;
mod state;
mod store;
mod terms;
mod tools;

pub use bare::BareCollection;
pub use family::IngestFamily;
pub use options::{FusionOptions, LocalOptions, Options, QdrantOptions};
pub use pdf::{PdfLimits, READ_PDF, read_pdf};
pub use search::{Fusion, SearchMode};

#[cfg(test)]
mod tests;
