//! The configuration: total, strict, layered, and able to say where each value
//! came from.
//!
//! ```text
//! defaults ─▶ config.toml ─▶ HIVEKEEP_SECTION__KEY ─▶ flags ─▶ checks ─▶ Config
//! ```
//!
//! Every value is a leaf with a source. Leaves are judged one by one, so one run
//! reports every error with its file and line or variable name. (The `config`
//! crate stops at the first error and knows no lines.)

mod daemon;
mod env;
mod file;
mod folders;
mod layers;
mod mcp_http;
mod problem;
mod shipped;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use daemon::DaemonOptions;
pub use folders::Folders;
pub(crate) use folders::LOG_FILE;
pub use layers::{Entry, Given, Loaded, load};
pub use mcp_http::McpHttpOptions;
pub use problem::{Problem, Problems, Source};
pub use shipped::shipped;

/// All options of the daemon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The process itself: folders, socket, logs, stopping.
    pub daemon: DaemonOptions,
    /// MCP over streamable HTTP.
    pub mcp_http: McpHttpOptions,
    /// The journal.
    pub store: hivekeep_store::Options,
    /// The registry: sessions, rates, quotas, admission.
    pub registry: hivekeep_registry::Options,
    /// The network of the workspaces: who may reach whom, port forwards, names.
    pub network: hivekeep_network::Options,
    /// Workspaces: machines, images, guests.
    pub workspace: hivekeep_workspace::Options,
    /// The git tools: who one is for which server.
    pub git: hivekeep_workspace::GitOptions,
    /// Teams: how many, how deep, and what their inboxes hold.
    pub team: hivekeep_team::Options,
    /// Swarms: how many run, and how long their results are kept.
    pub swarm: hivekeep_team::SwarmOptions,
    /// The vault: notes that outlive workspaces and sessions.
    pub vault: hivekeep_vault::Options,
}
