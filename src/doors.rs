//! The front doors. They translate between a wire and the registry's dispatcher,
//! and know no word of what the tools do.

pub mod control;
#[cfg(feature = "full")]
pub mod e2b;
#[cfg(feature = "full")]
mod event_feed;
#[cfg(test)]
mod fuzzing;
pub mod hello;
mod http;
#[cfg(feature = "full")]
pub mod http_api;
#[cfg(feature = "full")]
pub(crate) mod hub;
pub mod incoming;
pub mod line_splitter;
pub mod lines;
pub mod mcp;
pub mod mcp_http;
pub mod parents;
pub mod plain;
#[cfg(feature = "full")]
pub mod ports;
#[cfg(feature = "full")]
pub(crate) mod proxy;
mod result_form;
pub mod seats;
mod shared;
#[cfg(feature = "full")]
mod tool_calls;

pub use http::door::{DoorError, HttpDoor};
pub use shared::{ConnectionCount, DaemonServices, StopOrder, usual_view};
