//! Client of a guest's task queue: put, read, acknowledge.
//!
//! [`TaskQueueClient`] talks to one guest over a link; `check` validates its answers, pure.

mod check;
mod client;
#[cfg(test)]
mod tests;

pub use check::is_id;
pub use client::{TaskQueueClient, pushed_results};
