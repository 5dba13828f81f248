//! Tasks of the guests: put, read, acknowledged.
//!
//! [`hivekeep_link::tasks`] speaks with one guest; [`result_cache`] keeps what a guest told before it
//! was asked, [`progress`] makes events of what running tasks write; [`TasksHandle`] is the port through
//! which other actors reach every workspace's guest.

mod handle;
mod progress;
mod result_cache;

pub use handle::TasksHandle;
pub(crate) use progress::Pace;
pub(crate) use result_cache::ResultCache;
