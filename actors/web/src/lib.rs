//! HTTP client behind an egress filter, and a search front end over interchangeable providers.
//!
//! ```text
//!  web.fetch ─► Web (a service) ─► Fetcher ─► per hop: policy, robots.txt, request
//!                    │                              │ connects to addresses that were checked
//!                    │◄── readable text of a page ──┘
//!  web.search, web_search ─► Searcher ─► SearXNG, Brave, DuckDuckGo: the first that answers
//! ```
//! The host fetches on a session's behalf, so what answers is hostile and what is asked for may be, too:
//! no request reaches an address that is not global unless the operator allowed it, and body, time,
//! redirects and the work on a page are bounded.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod client;
pub mod codes;
mod document;
mod family;
mod fetch;
mod markup;
mod options;
mod pages;
mod policy;
mod reach;
mod resolve;
mod robots;
mod search;
mod tools;
mod web;

pub use family::WebFamily;
pub use options::{Options, ProviderKind, ProviderOptions};

#[cfg(test)]
mod tests;
