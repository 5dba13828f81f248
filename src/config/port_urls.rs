//! Options of URLs for ports of workspaces.

use std::{net::SocketAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// URLs for ports of workspaces, as `http://3000-NAME.localhost:7719`: a reverse proxy that routes by the
/// `Host` header, over the link and without a network. The tool `port_url` gives them. They are private
/// unless asked otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PortUrlOptions {
    /// Whether it listens.
    pub enabled: bool,
    /// Address and port. Others than loopback addresses need `tls_cert` and `tls_key`.
    pub bind: String,
    /// The certificate chain as PEM, for TLS; it is for `*.DOMAIN`. Unset: no encryption.
    pub tls_cert: Option<PathBuf>,
    /// The private key of `tls_cert` as PEM. Nobody else may be able to read it.
    pub tls_key: Option<PathBuf>,
    /// Domain whose names `PORT-NAME.DOMAIN` lead here. Names below `localhost` are this host's own without
    /// any name server; of another domain a wildcard record has to lead here.
    pub domain: String,
    /// The port that clients connect to, where that is not the one of `bind`, as behind another proxy.
    pub public_port: Option<u16>,
    /// The largest head of a request: its line and its headers.
    pub max_header_kb: usize,
    /// Connections at once. One more takes the place of the one that is silent for longest, and waits where all
    /// have a request.
    pub max_connections: usize,
    /// Requests at once, for as long as their answers last; those for one workspace are half of them at most. One
    /// more is answered 503.
    pub max_requests: usize,
    /// Upgraded connections at once, such as WebSockets; those to one workspace are half of them at most. One more is
    /// answered 503. One over which nothing passes for an hour ends.
    pub max_upgrades: usize,
    /// How long the head of a request, or a TLS handshake, may take; an idle connection is closed after
    /// it, too.
    pub header_timeout_secs: u64,
    /// How long a client may pause within the body of a request, and leave an answer unread.
    pub idle_timeout_secs: u64,
    /// How long a port may take to accept a connection.
    pub dial_timeout_secs: u64,
    /// How long a port may take to begin its answer; the answer itself may last.
    pub answer_timeout_secs: u64,
}

impl Default for PortUrlOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            bind: "127.0.0.1:7719".to_owned(),
            tls_cert: None,
            tls_key: None,
            domain: "localhost".to_owned(),
            public_port: None,
            max_header_kb: 64,
            max_connections: 1024,
            max_requests: 512,
            max_upgrades: 512,
            header_timeout_secs: 15,
            idle_timeout_secs: 60,
            dial_timeout_secs: 15,
            answer_timeout_secs: 300,
        }
    }
}

impl PortUrlOptions {
    /// The address to listen on, if it is a good one.
    ///
    /// # Errors
    /// When `bind` is not an address, or one that others reach and there is no TLS.
    pub fn address(&self) -> Result<SocketAddr, String> {
        let address: SocketAddr = self
            .bind
            .parse()
            .map_err(|_| format!("`{}` is not a valid address:port", self.bind))?;
        if !address.ip().is_loopback() && self.tls_cert.is_none() {
            let why = "is not a loopback address: set `tls_cert` and `tls_key`";
            return Err(format!("{} {why}", address.ip()));
        }
        Ok(address)
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
        if !is_domain(&self.domain) {
            let why = format!("`{}` is not a valid domain in lower case", self.domain);
            wrong.push(("domain", why));
        }
        if self.public_port == Some(0) {
            wrong.push(("public_port", "must be from 1 to 65535".to_owned()));
        }
        let (secs, count) = (1..=86_400, 1..=100_000);
        for (key, value, range) in [
            // The library behind the door takes no smaller buffer.
            ("max_header_kb", self.max_header_kb as u64, 8..=1024),
            ("max_connections", self.max_connections as u64, count.clone()),
            ("max_requests", self.max_requests as u64, count.clone()),
            ("max_upgrades", self.max_upgrades as u64, count),
            ("header_timeout_secs", self.header_timeout_secs, secs.clone()),
            ("idle_timeout_secs", self.idle_timeout_secs, secs.clone()),
            ("dial_timeout_secs", self.dial_timeout_secs, secs.clone()),
            ("answer_timeout_secs", self.answer_timeout_secs, secs),
        ] {
            if !range.contains(&value) {
                let (from, to) = range.into_inner();
                wrong.push((key, format!("must be from {from} to {to}")));
            }
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
    fn others_get_in_over_tls_alone() {
        let outside = PortUrlOptions { bind: "0.0.0.0:80".to_owned(), ..Default::default() };
        assert!(
            outside.check().iter().any(|(key, why)| *key == "bind" && why.contains("tls_cert"))
        );
        let (tls_cert, tls_key) = (Some("/c".into()), Some("/k".into()));
        let with_tls = PortUrlOptions { tls_cert, tls_key, ..outside };
        assert_eq!(with_tls.check(), []);
        let half = PortUrlOptions { tls_key: None, ..with_tls };
        assert!(half.check().iter().any(|(key, _)| *key == "tls_key"));
    }

    #[test]
    fn every_bound_is_checked() {
        assert_eq!(PortUrlOptions::default().check(), []);
        let nothing = PortUrlOptions {
            domain: "*.Example".to_owned(),
            public_port: Some(0),
            max_header_kb: 0,
            max_connections: 0,
            max_requests: 0,
            max_upgrades: 0,
            header_timeout_secs: 0,
            idle_timeout_secs: 0,
            dial_timeout_secs: 0,
            answer_timeout_secs: 0,
            ..Default::default()
        };
        assert_eq!(nothing.check().len(), 10);
        for domain in ["", ".", "a..b", "a b", "a/b", "a:80", "localhost."] {
            assert!(!is_domain(domain), "{domain}");
        }
        assert!(is_domain("ports.example.com"));
    }
}
