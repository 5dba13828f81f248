//! A client of a guest's task queue: put, read, acknowledged.
//!
//! [`Delivery`] speaks with one guest over a link; `check` is what is believed of its answers, pure.

mod check;
mod delivery;
#[cfg(test)]
mod tests;

pub use check::is_id;
pub use delivery::{Delivery, told};
