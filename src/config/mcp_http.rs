//! Options of the streamable HTTP door.

use std::{net::SocketAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// MCP at `/mcp` over HTTP, for clients that cannot start a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpHttpOptions {
    /// Whether the door is open.
    pub enabled: bool,
    /// Address and port. Only loopback addresses: there is no encryption here.
    pub bind: String,
    /// The file with the bearer token. Made with a random token if it is
    /// missing. Unset: `mcp-token` in the state directory.
    pub token_file: Option<PathBuf>,
    /// `Host` headers that are accepted, with or without a port.
    pub allowed_hosts: Vec<String>,
    /// `Origin` headers that are accepted, for example
    /// `http://localhost:*`. Requests without one, as programs send them, pass.
    pub allowed_origins: Vec<String>,
    /// The largest request body.
    pub max_body_mb: usize,
    /// A session without requests gives its memory back after this time. Its client goes on with it all the
    /// same, as long as `registry.sessions` keeps it.
    pub session_idle_secs: u64,
}

impl Default for McpHttpOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            bind: "127.0.0.1:7717".to_owned(),
            token_file: None,
            allowed_hosts: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into(),
            allowed_origins: Vec::new(),
            max_body_mb: 4,
            session_idle_secs: 300,
        }
    }
}

impl McpHttpOptions {
    /// The address to listen on, if it is a good one.
    ///
    /// # Errors
    /// When `bind` is not an address, or not a loopback address.
    pub fn address(&self) -> Result<SocketAddr, String> {
        let address: SocketAddr = self
            .bind
            .parse()
            .map_err(|_| format!("`{}` is not a valid address:port", self.bind))?;
        if !address.ip().is_loopback() {
            return Err(format!("{} is not a loopback address", address.ip()));
        }
        Ok(address)
    }

    /// Settings that cannot work, as key and reason.
    pub(super) fn check(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if let Err(reason) = self.address() {
            wrong.push(("bind", reason));
        }
        if self.allowed_hosts.is_empty() {
            // An empty list would mean "any host" to the library behind the door.
            wrong.push(("allowed_hosts", "must name at least one host".to_owned()));
        }
        if self.max_body_mb == 0 || self.max_body_mb > 1024 {
            wrong.push(("max_body_mb", "must be from 1 to 1024".to_owned()));
        }
        if self.session_idle_secs == 0 {
            wrong.push(("session_idle_secs", "must be above 0".to_owned()));
        }
        for origin in &self.allowed_origins {
            if origin != "null" && !origin.contains("://") {
                wrong.push(("allowed_origins", format!("`{origin}` has no scheme")));
            }
        }
        wrong
    }
}
