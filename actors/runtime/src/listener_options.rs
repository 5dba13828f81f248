//! Options of a listener, which several sections of the configuration have.

use std::{net::SocketAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Address of a door, and its TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerOptions {
    /// Whether it listens.
    pub enabled: bool,
    /// Address and port. Others than loopback addresses need `tls_cert` and `tls_key`.
    pub bind: String,
    /// The certificate chain as PEM, for TLS. Unset: no encryption.
    pub tls_cert: Option<PathBuf>,
    /// The private key of `tls_cert` as PEM. Nobody else may be able to read it.
    pub tls_key: Option<PathBuf>,
}

impl ListenerOptions {
    /// A listener that is off, without TLS.
    pub fn at(bind: &str) -> Self {
        Self { enabled: false, bind: bind.to_owned(), tls_cert: None, tls_key: None }
    }

    /// Address to listen on.
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
    pub fn reachable(&self, address: SocketAddr) -> Result<(), String> {
        match address.ip().is_loopback() || self.tls_cert.is_some() {
            true => Ok(()),
            false => {
                let why = "is not a loopback address: set `tls_cert` and `tls_key`";
                Err(format!("{} {why}", address.ip()))
            }
        }
    }

    /// Settings that cannot work, as key and reason.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let bind = self.address().err().map(|why| ("bind", why));
        let half = self.tls_cert.is_some() != self.tls_key.is_some();
        let half = half.then(|| ("tls_key", "`tls_cert` and `tls_key` go together".to_owned()));
        bind.into_iter().chain(half).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_get_in_over_tls_alone() {
        let told = |options: &ListenerOptions| {
            options.problems().into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(told(&ListenerOptions::at("127.0.0.1:0")), [""; 0]);
        assert_eq!(told(&ListenerOptions::at("localhost")), ["bind"]);
        let outside = ListenerOptions::at("0.0.0.0:80");
        assert!(outside.problems()[0].1.contains("tls_cert"));
        let with_tls = ListenerOptions {
            tls_cert: Some("/c".into()),
            tls_key: Some("/k".into()),
            ..outside.clone()
        };
        assert_eq!(told(&with_tls), [""; 0]);
        assert_eq!(told(&ListenerOptions { tls_key: None, ..with_tls }), ["tls_key"]);
        let key_alone = ListenerOptions { tls_key: Some("/k".into()), ..outside };
        assert_eq!(told(&key_alone), ["bind", "tls_key"]);
    }
}
