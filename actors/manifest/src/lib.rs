//! Static checker of manifests: agents, workflows and DAGs as plain types, their JSON schemas, and what
//! is wrong with a YAML text.
//!
//! ```text
//! text ─▶ yaml (a tree with places, within a budget) ─▶ schema ─▶ types ─▶ rules ─▶ problems
//! ```
//! It does no I/O and runs nothing: that a manifest is valid says that its text makes sense, not that
//! the images, agents and files exist that it names.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod agent;
mod base;
mod check;
pub mod common;
pub mod consensus;
pub mod dag;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod problems;
pub mod times;
pub mod workflow;
mod yaml;

pub use check::{
    BASE_FILE, DagFile, ManifestKind, check, parse_agent, parse_workflow, read_agent, read_dag,
    read_dag_over, read_workflow, schema,
};
pub use problems::MAX_PROBLEMS;
pub use yaml::{MAX_TEXT_BYTES, read_yaml};

#[cfg(test)]
mod tests;
