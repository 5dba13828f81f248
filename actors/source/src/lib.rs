//! MCP clients under supervision: tools of other servers, published beside the daemon's own.
//!
//! ```text
//!  catalogue ◀─ publish ─ source ◀─ up, down ─ connection loop ─ stdio (a sandbox) ─▶ server
//!                            │                                 └ streamable HTTP ───▶ server
//!  registry ── call ──▶ source ── worker: tools/call ──────────────────────────────────▲
//! ```
//! A source is an actor per server. Its loop connects, lists the tools, asks whether the server lives,
//! and begins again with growing pauses; what was listed last is in the journal and stays listed
//! meanwhile. A server is not trusted: names, sizes and numbers of what it declares are bounded, what it
//! says of a tool's effect counts only where the operator says so, and a tool that is not valid is left
//! out with its reason while the others stay.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod call;
mod client;
pub mod codes;
mod connect;
mod declare;
mod family;
mod http;
mod link;
mod list;
mod options;
mod record;
mod source;
mod stdio;
mod supervisor;
mod tools;

pub use family::SourceFamily;
pub use options::{Options, SandboxKind, ServerName, ServerOptions};

#[cfg(test)]
mod tests;
