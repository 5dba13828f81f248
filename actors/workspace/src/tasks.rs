//! Tasks of the guests: put, read, acknowledged.
//!
//! [`Delivery`] speaks with one guest over a link; [`check`] is what is believed of its answers,
//! pure; [`told`] is what a guest told before it was asked, [`progress`] what it says of running
//! tasks; [`TasksHandle`] is the port through which other actors reach every workspace's guest.

mod check;
mod delivery;
mod handle;
mod progress;
#[cfg(test)]
mod tests;
mod told;

pub use delivery::Delivery;
pub use handle::TasksHandle;
pub(crate) use progress::Pace;
pub(crate) use told::Told;
