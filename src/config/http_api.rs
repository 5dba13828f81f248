//! Options of the HTTP API.

use std::{net::SocketAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The HTTP API at `/api`: tools, sessions, approvals and events, for programs and dashboards.
/// Clients show a bearer credential, which `hivekeep credential create` makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpApiOptions {
    /// Whether the door is open.
    pub enabled: bool,
    /// Address and port. Others than loopback addresses need `tls_cert` and `tls_key`.
    pub bind: String,
    /// The certificate chain as PEM, for TLS. Unset: no encryption.
    pub tls_cert: Option<PathBuf>,
    /// The private key of `tls_cert` as PEM. Nobody else may be able to read it.
    pub tls_key: Option<PathBuf>,
    /// `Host` headers that are accepted, with or without a port. A name that is not here is refused, so
    /// that no page of a browser gets in by a name that it points at this host.
    pub allowed_hosts: Vec<String>,
    /// `Origin` headers that are accepted, as `https://dashboard.example` or `http://localhost:*`.
    /// Requests without one, as programs send them, pass.
    pub allowed_origins: Vec<String>,
    /// The largest request body.
    pub max_body_mb: usize,
    /// The largest head of a request: its line and its headers.
    pub max_header_kb: usize,
    /// Connections at once. One more takes the place of the one that is silent for longest, and waits where all
    /// have a request.
    pub max_connections: usize,
    /// Requests at once, streams of events not counted; one credential has half of them at most. One more is
    /// answered 503.
    pub max_requests: usize,
    /// Streams of events at once; one credential has half of them at most. One more is answered 503.
    pub max_streams: usize,
    /// How long the head of a request, or a TLS handshake, may take; an idle connection is closed after
    /// it, too.
    pub header_timeout_secs: u64,
    /// How long the body of a request may take.
    pub body_timeout_secs: u64,
    /// How long a client may leave an answer unread before its connection is closed.
    pub write_timeout_secs: u64,
    /// A session that no request has named for this time counts as left; it ends
    /// `registry.sessions.grace_secs` later.
    pub session_idle_secs: u64,
}

impl Default for HttpApiOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            bind: "127.0.0.1:7718".to_owned(),
            tls_cert: None,
            tls_key: None,
            allowed_hosts: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into(),
            allowed_origins: Vec::new(),
            max_body_mb: 4,
            max_header_kb: 16,
            max_connections: 1024,
            max_requests: 256,
            max_streams: 256,
            header_timeout_secs: 15,
            body_timeout_secs: 30,
            write_timeout_secs: 60,
            session_idle_secs: 300,
        }
    }
}

impl HttpApiOptions {
    /// The address to listen on, if it is a good one.
    ///
    /// # Errors
    /// When `bind` is not an address, or one that others reach and there is no TLS.
    pub fn address(&self) -> Result<SocketAddr, String> {
        listen_address(&self.bind, self.tls_cert.is_some())
    }

    /// Settings that cannot work, as key and reason.
    pub(super) fn check(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if let Err(reason) = self.address() {
            wrong.push(("bind", reason));
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            wrong.push(("tls_key", "`tls_cert` and `tls_key` go together".to_owned()));
        }
        if self.allowed_hosts.is_empty() {
            wrong.push(("allowed_hosts", "must name at least one host".to_owned()));
        }
        for origin in &self.allowed_origins {
            if origin != "null" && !origin.contains("://") {
                wrong.push(("allowed_origins", format!("`{origin}` has no scheme")));
            }
        }
        let (secs, count) = (1..=86_400, 1..=100_000);
        for (key, value, range) in [
            ("max_body_mb", self.max_body_mb as u64, 1..=1024),
            // The library behind the door takes no smaller buffer.
            ("max_header_kb", self.max_header_kb as u64, 8..=1024),
            ("max_connections", self.max_connections as u64, count.clone()),
            ("max_requests", self.max_requests as u64, count.clone()),
            ("max_streams", self.max_streams as u64, count),
            ("header_timeout_secs", self.header_timeout_secs, secs.clone()),
            ("body_timeout_secs", self.body_timeout_secs, secs.clone()),
            ("write_timeout_secs", self.write_timeout_secs, secs.clone()),
            ("session_idle_secs", self.session_idle_secs, secs),
        ] {
            if !range.contains(&value) {
                let (from, to) = range.into_inner();
                wrong.push((key, format!("must be from {from} to {to}")));
            }
        }
        wrong
    }
}

/// Address of a door, of which others than loopback ones need TLS.
pub(super) fn listen_address(bind: &str, has_tls: bool) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        bind.parse().map_err(|_| format!("`{bind}` is not a valid address:port"))?;
    if !address.ip().is_loopback() && !has_tls {
        let why = "is not a loopback address: set `tls_cert` and `tls_key`";
        return Err(format!("{} {why}", address.ip()));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_get_in_over_tls_alone() {
        let outside = HttpApiOptions { bind: "0.0.0.0:7718".to_owned(), ..Default::default() };
        assert!(
            outside.check().iter().any(|(key, why)| *key == "bind" && why.contains("tls_cert"))
        );
        let files = (Some("/c".into()), Some("/k".into()));
        let (tls_cert, tls_key) = files;
        let with_tls = HttpApiOptions { tls_cert, tls_key, ..outside.clone() };
        assert_eq!(with_tls.check(), []);
        let half = HttpApiOptions { tls_key: None, ..with_tls };
        assert!(half.check().iter().any(|(key, _)| *key == "tls_key"));
        assert_eq!(HttpApiOptions::default().check(), []);
    }

    #[test]
    fn every_bound_is_checked() {
        let nothing = HttpApiOptions {
            allowed_hosts: Vec::new(),
            max_body_mb: 0,
            max_header_kb: 0,
            max_connections: 0,
            max_requests: 0,
            max_streams: 0,
            header_timeout_secs: 0,
            body_timeout_secs: 0,
            write_timeout_secs: 0,
            session_idle_secs: 0,
            ..Default::default()
        };
        assert_eq!(nothing.check().len(), 10);
    }
}
