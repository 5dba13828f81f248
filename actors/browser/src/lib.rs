//! Browser sessions under supervision: a Chrome for each session that asks for one, in a sandbox of its own.
//!
//! ```text
//!  webview_* ─▶ browsers ─▶ browser* ─ worker: DevTools over pipes ─▶ Chrome (a sandbox)
//!                              └ loop: starts, watches, ends it           │ its only way out
//!                                       network ◀─ addresses judged ─ SOCKS proxy
//! ```
//! An actor is a session's browser. Its loop starts Chrome and watches it; an end out of order is an event,
//! a typed error of the calls that ran, and a restart by policy, with what was lost told once. Pages are
//! hostile: every size is bounded, every call has a deadline, and a page reaches only what the operator's
//! rules allow, whatever it asks for and however the names it uses resolve.
#![warn(missing_docs)]
#![deny(unsafe_code)]

mod act;
mod browser;
mod browsers;
mod carrier;
mod cdp;
mod chrome;
pub mod codes;
mod family;
mod folder;
mod netns;
mod options;
mod page;
mod place;
mod process;
mod proxy;
mod session;
mod state;
mod tools;

pub use family::BrowserFamily;
pub use options::{AttachOptions, Options};

#[cfg(test)]
mod tests;
