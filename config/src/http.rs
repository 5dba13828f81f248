//! Options of the doors over HTTP.

use std::collections::BTreeMap;

use hivekeep_machine::Isolation;
use hivekeep_runtime::ListenerOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// E2B's API, for its SDKs.
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

/// The door for programs that are written against E2B's SDKs: their sandboxes are workspaces. `E2B_API_URL` and
/// `E2B_SANDBOX_URL` of such a program name this address, and `E2B_API_KEY` is a credential of
/// `hivekeep credential create` whose beginning `hivekeep_` is `e2b_`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct E2bOptions {
    /// Address and TLS.
    #[serde(flatten)]
    pub listener: ListenerOptions,
    /// Domain that clients are told, below which each sandbox has its hosts; with a colon and the port that they
    /// reach, unless that is the usual one. Unset: `localhost` and the port of the door.
    pub domain: Option<String>,
    /// Images that templates stand for, by their names. A template that is not here is an image of its own name.
    pub templates: BTreeMap<String, String>,
    /// How sandboxes are isolated. Unset: as workspaces are.
    pub isolation: Option<Isolation>,
    /// User of commands and files for which a client names none.
    pub user: String,
    /// Whether the ports of a sandbox are reached without a token where a client does not say: by whoever reaches
    /// this address and knows the sandbox's name, which has 80 random bits. Ports that run code never are.
    pub public_ports: bool,
    /// Lifetime of a sandbox for which a client names none. At most `max_lifetime_secs`.
    #[schemars(range(min = 1))]
    pub lifetime_secs: u64,
    /// The longest lifetime that a client may ask for.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub max_lifetime_secs: u64,
    /// The largest body of a call.
    #[schemars(range(min = 1, max = 1024))]
    pub max_body_mb: usize,
    /// The largest file that is uploaded.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_file_mb: u64,
    /// Requests at once, streams included, of which a credential has half at most, and so have all that show none
    /// together. One more is answered 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_requests: usize,
}

impl Default for E2bOptions {
    fn default() -> Self {
        Self {
            listener: ListenerOptions::at("127.0.0.1:7720"),
            domain: None,
            templates: BTreeMap::new(),
            isolation: None,
            user: "user".to_owned(),
            public_ports: false,
            lifetime_secs: 300,
            max_lifetime_secs: 86_400,
            max_body_mb: 16,
            max_file_mb: 1024,
            max_requests: 1024,
        }
    }
}

impl E2bOptions {
    /// Settings that cannot work, as key and reason.
    fn check(&self) -> Vec<(&'static str, String)> {
        let mut wrong = self.listener.problems();
        if self.user.is_empty() || !self.user.bytes().all(is_of_user) {
            wrong.push(("user", format!("`{}` is not a valid name of a user", self.user)));
        }
        if self.lifetime_secs > self.max_lifetime_secs {
            wrong.push(("lifetime_secs", format!("must be at most {}", self.max_lifetime_secs)));
        }
        wrong
    }
}

fn is_of_user(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// URLs for ports of workspaces, as `http://3000-NAME.localhost:7719`: a reverse proxy that routes by the
/// `Host` header, over the link and without a network. The tool `port_url` gives them. They are private
/// unless asked otherwise. A certificate is for `*.DOMAIN`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PortUrlOptions {
    /// Address and TLS.
    #[serde(flatten)]
    pub listener: ListenerOptions,
    /// Domain whose names `PORT-NAME.DOMAIN` lead here. Names below `localhost` are this host's own without
    /// any name server; of another domain a wildcard record has to lead here.
    pub domain: String,
    /// The port that clients connect to, where that is not the one of `bind`, as behind another proxy.
    #[schemars(range(min = 1, max = 65_535))]
    pub public_port: Option<u16>,
    /// Requests at once, for as long as their answers last; those for one workspace are half of them at most. One
    /// more is answered 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_requests: usize,
    /// Upgraded connections at once, such as WebSockets; those to one workspace are half of them at most. One more is
    /// answered 503. One over which nothing passes for an hour ends.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_upgrades: usize,
    /// How long a port may take to accept a connection.
    #[schemars(range(min = 1, max = 86_400))]
    pub dial_timeout_secs: u64,
    /// How long a port may take to begin its answer; the answer itself may last.
    #[schemars(range(min = 1, max = 86_400))]
    pub answer_timeout_secs: u64,
}

impl Default for PortUrlOptions {
    fn default() -> Self {
        Self {
            listener: ListenerOptions::at("127.0.0.1:7719"),
            domain: "localhost".to_owned(),
            public_port: None,
            max_requests: 512,
            max_upgrades: 512,
            dial_timeout_secs: 15,
            answer_timeout_secs: 300,
        }
    }
}

impl PortUrlOptions {
    /// Settings that cannot work, as key and reason.
    fn check(&self) -> Vec<(&'static str, String)> {
        let mut wrong = self.listener.problems();
        if !is_domain(&self.domain) {
            let why = format!("`{}` is not a valid domain in lower case", self.domain);
            wrong.push(("domain", why));
        }
        wrong
    }
}

/// Labels of letters, digits and hyphens, joined by dots.
fn is_domain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(plain);
    text.len() <= 180 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn domains_are_labels_in_lower_case() {
        for domain in ["", ".", "a..b", "a b", "a/b", "a:80", "localhost.", "*.Example"] {
            assert!(!is_domain(domain), "{domain}");
        }
        assert!(is_domain("ports.example.com"));
    }
}
