//! Client of a guest's task queue: put, read, acknowledge.
//!
//! [`Delivery`] talks to one guest over a link; `check` validates its answers, pure.

mod check;
mod delivery;
#[cfg(test)]
mod tests;

pub use check::is_id;
pub use delivery::{Delivery, told};
