//! Tasks of the guests: put, read, acknowledged.
//!
//! [`hivekeep_link::tasks`] speaks with one guest; [`told`] is what a guest told before it was asked, [`progress`] what it says of running
//! tasks; [`TasksHandle`] is the port through which other actors reach every workspace's guest.

mod handle;
mod progress;
mod told;

pub use handle::TasksHandle;
pub(crate) use progress::Pace;
pub(crate) use told::Told;
