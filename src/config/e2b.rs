//! Options of the door for E2B's SDKs.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use hivekeep_machine::Isolation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::http_api::listen_address;

/// The door for programs that are written against E2B's SDKs: their sandboxes are workspaces. `E2B_API_URL` and
/// `E2B_SANDBOX_URL` of such a program name this address, and `E2B_API_KEY` is a credential of
/// `hivekeep credential create` whose beginning `hivekeep_` is `e2b_`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct E2bOptions {
    /// Whether the door is open.
    pub enabled: bool,
    /// Address and port. Others than loopback addresses need `tls_cert` and `tls_key`.
    pub bind: String,
    /// The certificate chain as PEM, for TLS. Unset: no encryption.
    pub tls_cert: Option<PathBuf>,
    /// The private key of `tls_cert` as PEM. Nobody else may be able to read it.
    pub tls_key: Option<PathBuf>,
    /// `Host` headers that are accepted, with or without a port.
    pub allowed_hosts: Vec<String>,
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
    /// Lifetime of a sandbox for which a client names none.
    pub lifetime_secs: u64,
    /// The longest lifetime that a client may ask for.
    pub max_lifetime_secs: u64,
    /// The largest body of a call.
    pub max_body_mb: usize,
    /// The largest file that is uploaded.
    pub max_file_mb: u64,
    /// Connections at once. One more takes the place of the one that is silent for longest, and waits where all
    /// have a request.
    pub max_connections: usize,
    /// Requests at once, streams included, of which a credential has half at most, and so have all that show none
    /// together. One more is answered 503.
    pub max_requests: usize,
    /// How long the head of a request may take; an idle connection is closed after it, too. Clients keep idle
    /// ones for up to 90 seconds.
    pub header_timeout_secs: u64,
    /// How long the body of a call, a long message of a stream, or a pause within an upload or a stream may take.
    pub body_timeout_secs: u64,
    /// How long a client may leave an answer unread before its connection is closed.
    pub write_timeout_secs: u64,
}

impl Default for E2bOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            bind: "127.0.0.1:7720".to_owned(),
            tls_cert: None,
            tls_key: None,
            allowed_hosts: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into(),
            domain: None,
            // What their code interpreter SDKs ask for.
            templates: BTreeMap::new(),
            isolation: None,
            user: "user".to_owned(),
            public_ports: false,
            lifetime_secs: 300,
            max_lifetime_secs: 86_400,
            max_body_mb: 16,
            max_file_mb: 1024,
            max_connections: 1024,
            max_requests: 1024,
            header_timeout_secs: 100,
            body_timeout_secs: 60,
            write_timeout_secs: 60,
        }
    }
}

impl E2bOptions {
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
            wrong.push(("e2b.bind", reason));
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            wrong.push(("e2b.tls_key", "`tls_cert` and `tls_key` go together".to_owned()));
        }
        if self.allowed_hosts.is_empty() {
            wrong.push(("e2b.allowed_hosts", "must name at least one host".to_owned()));
        }
        if self.user.is_empty() || !self.user.bytes().all(is_of_user) {
            wrong.push(("e2b.user", format!("`{}` is not a valid name of a user", self.user)));
        }
        let (secs, count) = (1..=86_400, 1..=100_000);
        for (key, value, range) in [
            ("e2b.lifetime_secs", self.lifetime_secs, 1..=self.max_lifetime_secs),
            ("e2b.max_lifetime_secs", self.max_lifetime_secs, 1..=31_536_000),
            ("e2b.max_body_mb", self.max_body_mb as u64, 1..=1024),
            ("e2b.max_file_mb", self.max_file_mb, 1..=1_048_576),
            ("e2b.max_connections", self.max_connections as u64, count.clone()),
            ("e2b.max_requests", self.max_requests as u64, count),
            ("e2b.header_timeout_secs", self.header_timeout_secs, secs.clone()),
            ("e2b.body_timeout_secs", self.body_timeout_secs, secs.clone()),
            ("e2b.write_timeout_secs", self.write_timeout_secs, secs),
        ] {
            if !range.contains(&value) {
                let (from, to) = range.into_inner();
                wrong.push((key, format!("must be from {from} to {to}")));
            }
        }
        wrong
    }
}

fn is_of_user(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_is_checked() {
        assert_eq!(E2bOptions::default().check(), []);
        let nothing = E2bOptions {
            bind: "0.0.0.0:1".to_owned(),
            tls_key: Some("/k".into()),
            allowed_hosts: Vec::new(),
            user: "root:/".to_owned(),
            lifetime_secs: 0,
            max_lifetime_secs: 0,
            max_body_mb: 0,
            max_file_mb: 0,
            max_connections: 0,
            max_requests: 0,
            header_timeout_secs: 0,
            body_timeout_secs: 0,
            write_timeout_secs: 0,
            ..Default::default()
        };
        assert_eq!(nothing.check().len(), 13);
    }
}
