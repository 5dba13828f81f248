//! Plans: what a run does, whichever notation it was written in, and how far it is. No I/O.
//!
//! ```text
//! manifest of a workflow ─┐
//!                         ├─ lowered ─▶ RunPlan ─ records ─▶ RunProgress ─▶ what is due
//! file of a DAG ──────────┘
//! ```
//! A [`RunPlan`](plan::RunPlan) has nodes with their policies; [`RunProgress`](progress::RunProgress) is what its
//! records add up to, and the only thing that says which step comes next.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod go_template;
pub mod lower;
pub mod machine;
pub mod plan;
pub mod progress;
pub mod resolve;
pub mod schema;
