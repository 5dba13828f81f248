//! Tasks of the guests: put, read, acknowledged.
//!
//! [`Delivery`] speaks with one guest over a link; [`check`] is what is believed of its answers,
//! pure; [`TasksHandle`] is the port through which other actors reach every workspace's guest.

mod check;
mod delivery;
mod handle;
#[cfg(test)]
mod tests;

pub use delivery::Delivery;
pub use handle::TasksHandle;
