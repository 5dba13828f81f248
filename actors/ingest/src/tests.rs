//! Tests of the family over a real journal, with an embedder that counts, and of the two stores side by side.

mod agreement;
mod deletions;
mod fake;
mod ingestions;
pub(crate) mod places;
mod queries;
mod sharing;
mod stage;
mod watching;
