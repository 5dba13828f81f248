//! Section `[hub]`.

use std::{net::SocketAddr, path::PathBuf};

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The hub at `/ws`: processes, events, teams and ingestions, followed live over WebSocket. Clients show a
/// bearer credential, as at the HTTP API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Whether it listens from the daemon's start on. If not, the tool `ws_start` opens it until the daemon
    /// stops.
    pub enabled: bool,
    /// Address and port. Others than loopback addresses need `tls_cert` and `tls_key`.
    pub bind: String,
    /// The certificate chain as PEM, for TLS. Unset: no encryption.
    pub tls_cert: Option<PathBuf>,
    /// The private key of `tls_cert` as PEM. Nobody else may be able to read it.
    pub tls_key: Option<PathBuf>,
    /// `Host` headers that are accepted, with or without a port.
    pub allowed_hosts: Vec<String>,
    /// `Origin` headers that are accepted, as `https://dashboard.example` or `http://localhost:*`.
    /// Clients without one, as programs are, pass.
    pub allowed_origins: Vec<String>,
    /// Clients at once; one credential has half of them at most. One more is answered 503.
    pub max_clients: usize,
    /// Channels that one client may subscribe to.
    pub max_channels: usize,
    /// Messages that wait for a client that reads slowly, of each of its channels; it is told what it missed
    /// beyond them.
    pub max_behind: usize,
    /// Interval of pings. A client that has sent nothing for twice that is cut off.
    pub ping_secs: u64,
    /// Shortest time between two reads of a process that is followed. Each is a call in its session.
    pub poll_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enabled: false,
            bind: "127.0.0.1:8080".to_owned(),
            tls_cert: None,
            tls_key: None,
            allowed_hosts: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into(),
            allowed_origins: Vec::new(),
            max_clients: 256,
            max_channels: 64,
            max_behind: 256,
            ping_secs: 30,
            poll_ms: 1_000,
        }
    }
}

impl Options {
    /// Address to listen on, if it is a good one.
    ///
    /// # Errors
    /// When `bind` is not an address, or one that others reach and there is no TLS.
    pub fn address(&self) -> Result<SocketAddr, String> {
        let address = self.bind.parse();
        let address =
            address.map_err(|_| format!("`{}` is not a valid address:port", self.bind))?;
        self.reachable(address).map(|()| address)
    }

    /// Whether an address may be listened on at all.
    ///
    /// # Errors
    /// When others reach it and there is no TLS.
    pub(crate) fn reachable(&self, address: SocketAddr) -> Result<(), String> {
        match address.ip().is_loopback() || self.tls_cert.is_some() {
            true => Ok(()),
            false => {
                let why = "is not a loopback address: set `hub.tls_cert` and `hub.tls_key`";
                Err(format!("{} {why}", address.ip()))
            }
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
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
        for origin in self.allowed_origins.iter().filter(|it| *it != "null" && !it.contains("://"))
        {
            wrong.push(("allowed_origins", format!("`{origin}` has no scheme")));
        }
        for (key, value, range) in [
            ("max_clients", self.max_clients as u64, 1..=100_000),
            ("max_channels", self.max_channels as u64, 1..=1_000),
            ("max_behind", self.max_behind as u64, 1..=1_000),
            ("ping_secs", self.ping_secs, 1..=3_600),
            ("poll_ms", self.poll_ms, 20..=60_000),
        ] {
            if !range.contains(&value) {
                let (from, to) = range.into_inner();
                wrong.push((key, format!("must be from {from} to {to}")));
            }
        }
        wrong
    }
}
