//! The front doors. They translate between a wire and the registry's dispatcher,
//! and know no word of what the tools do.

mod announce;
pub mod control;
pub mod e2b;
mod event_feed;
pub mod hello;
mod http;
pub mod http_api;
pub(crate) mod hub;
pub mod incoming;
pub mod line_splitter;
pub mod lines;
pub mod mcp;
pub mod mcp_http;
pub mod parents;
pub mod plain;
pub mod ports;
pub(crate) mod proxy;
pub mod rate;
mod result_form;
pub mod seats;
mod shared;

pub use shared::{ConnectionCount, DaemonServices, StopOrder, usual_view};
