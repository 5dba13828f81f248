//! Plans that workflows and DAGs are lowered to, and the texts in them. No I/O.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod machine;
pub mod resolve;
