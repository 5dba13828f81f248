//! Tests of the family over a real journal, with an embedder that counts, and of the two stores side by side.

mod agreement;
mod fake;
mod ingestions;
mod queries;
mod stage;
