//! Options of the doors over HTTP.

use hivekeep_runtime::ListenerOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{E2bOptions, PortUrlOptions};

/// Doors over HTTP: a table for each, and what all have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpOptions {
    /// `Host` headers that are accepted, with or without a port. A name that is not here is refused, so
    /// that no page of a browser gets in by a name that it points at this host. URLs for ports have their
    /// `domain` instead.
    pub allowed_hosts: Vec<String>,
    /// `Origin` headers that are accepted, as `https://dashboard.example` or `http://localhost:*`.
    /// Requests without one, as programs send them, pass.
    pub allowed_origins: Vec<String>,
    /// Connections to one door at once. One more takes the place of the one that is silent for longest, and
    /// waits where all have a request.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_connections: usize,
    /// The largest head of a request: its line and its headers.
    // The library behind the doors takes no smaller buffer.
    #[schemars(range(min = 8, max = 1024))]
    pub max_header_kb: usize,
    /// How long the head of a request, or a TLS handshake, may take; an idle connection is closed after
    /// it, too. Clients keep idle ones for up to 90 seconds.
    #[schemars(range(min = 1, max = 86_400))]
    pub header_timeout_secs: u64,
    /// How long the body of a call may take, and a client may pause within an upload or a stream.
    #[schemars(range(min = 1, max = 86_400))]
    pub body_timeout_secs: u64,
    /// How long a client may leave an answer unread before its connection is closed.
    #[schemars(range(min = 1, max = 86_400))]
    pub write_timeout_secs: u64,
    /// MCP at `/mcp`, for clients that cannot start a program.
    pub mcp: McpHttpOptions,
    /// The HTTP API at `/api`: tools, sessions, approvals and events, for programs and dashboards.
    #[cfg(feature = "full")]
    pub api: HttpApiOptions,
    /// What E2B's SDKs speak.
    #[cfg(feature = "full")]
    pub e2b: E2bOptions,
    /// URLs for ports of workspaces.
    #[cfg(feature = "full")]
    pub ports: PortUrlOptions,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            allowed_hosts: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into(),
            allowed_origins: Vec::new(),
            max_connections: 1024,
            max_header_kb: 64,
            header_timeout_secs: 100,
            body_timeout_secs: 60,
            write_timeout_secs: 60,
            mcp: McpHttpOptions::default(),
            #[cfg(feature = "full")]
            api: HttpApiOptions::default(),
            #[cfg(feature = "full")]
            e2b: E2bOptions::default(),
            #[cfg(feature = "full")]
            ports: PortUrlOptions::default(),
        }
    }
}

impl HttpOptions {
    /// Settings that cannot work, as key and reason.
    pub(super) fn check(&self) -> Vec<(String, String)> {
        let mut wrong = Vec::new();
        if self.allowed_hosts.is_empty() {
            // To the library behind the door of MCP an empty list means any host.
            wrong.push(("allowed_hosts".to_owned(), "must name at least one host".to_owned()));
        }
        for origin in &self.allowed_origins {
            if origin != "null" && !origin.contains("://") {
                wrong.push(("allowed_origins".to_owned(), format!("`{origin}` has no scheme")));
            }
        }
        let mut add = |door: &str, found: Vec<(&'static str, String)>| {
            wrong.extend(found.into_iter().map(|(key, why)| (format!("{door}.{key}"), why)));
        };
        add("mcp", self.mcp.listener.problems());
        #[cfg(feature = "full")]
        {
            add("api", self.api.listener.problems());
            add("e2b", self.e2b.check());
            add("ports", self.ports.check());
        }
        wrong
    }
}

/// The door of MCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpHttpOptions {
    /// Address and TLS.
    #[serde(flatten)]
    pub listener: ListenerOptions,
    /// The file with the operator's bearer token, beside which clients show credentials. Made with a random
    /// token if it is missing. Unset: `mcp-token` in the state directory.
    pub token_file: Option<std::path::PathBuf>,
    /// The largest request body.
    #[schemars(range(min = 1, max = 1024))]
    pub max_body_mb: usize,
    /// A session without requests gives its memory back after this time. Its client goes on with it all the
    /// same, as long as `registry.sessions` keeps it.
    #[schemars(range(min = 1, max = 86_400))]
    pub session_idle_secs: u64,
}

impl Default for McpHttpOptions {
    fn default() -> Self {
        Self {
            listener: ListenerOptions::at("127.0.0.1:7717"),
            token_file: None,
            max_body_mb: 4,
            session_idle_secs: 300,
        }
    }
}

/// The HTTP API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpApiOptions {
    /// Address and TLS.
    #[serde(flatten)]
    pub listener: ListenerOptions,
    /// The largest request body.
    #[schemars(range(min = 1, max = 1024))]
    pub max_body_mb: usize,
    /// Requests at once, streams of events not counted; one credential has half of them at most. One more is
    /// answered 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_requests: usize,
    /// Streams of events at once; one credential has half of them at most. One more is answered 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_streams: usize,
    /// A session that no request has named for this time counts as left; it ends
    /// `registry.sessions.grace_secs` later.
    #[schemars(range(min = 1, max = 86_400))]
    pub session_idle_secs: u64,
}

impl Default for HttpApiOptions {
    fn default() -> Self {
        Self {
            listener: ListenerOptions::at("127.0.0.1:7718"),
            max_body_mb: 4,
            max_requests: 256,
            max_streams: 256,
            session_idle_secs: 300,
        }
    }
}
