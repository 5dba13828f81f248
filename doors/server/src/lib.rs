//! Parts that all doors have in common: the daemon as they see it, credentials, the server of those over HTTP,
//! bounds of what comes in, forms of what goes out. Doors translate between a wire and the registry's
//! dispatcher, and know no word of what the tools do.
#![warn(missing_docs)]

pub mod codes;
pub mod credentials;
#[cfg(feature = "full")]
pub mod event_feed;
pub mod excerpt;
#[cfg(test)]
mod fuzzing;
pub mod hello;
pub mod http;
pub mod incoming;
pub mod line_splitter;
pub mod lines;
pub mod listing;
pub mod parents;
pub mod plain;
pub mod prompts;
#[cfg(feature = "full")]
pub mod proxy;
pub mod result_form;
pub mod seats;
mod shared;
#[cfg(feature = "full")]
pub mod tool_calls;

pub use http::door::{DoorError, HttpDoor};
pub use shared::{ConnectionCount, DaemonServices, StopOrder, usual_view};
