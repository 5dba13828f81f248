//! Options that several sections of the configuration have: listeners, and files with credentials, which are
//! read when they are used, so that whatever renews them can do so.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

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

/// Largest file with a secret.
const SECRET_BYTES: u64 = 64 * 1024;

/// Reads a small text file without the end of its line.
///
/// # Errors
/// The reason, for people; never what is in it.
pub async fn read_secret(file: &Path) -> Result<String, String> {
    let wrong = |why: String| format!("{} cannot be read: {why}", file.display());
    let opened = tokio::fs::File::open(file).await.map_err(|error| wrong(error.to_string()))?;
    let mut text = String::new();
    let read = opened.take(SECRET_BYTES + 1).read_to_string(&mut text).await;
    read.map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > SECRET_BYTES {
        return Err(wrong(format!("it is larger than {SECRET_BYTES} bytes")));
    }
    let text = text.trim_end_matches(['\r', '\n']);
    match text.is_empty() || text.contains('\0') {
        true => Err(wrong("it has no text".to_owned())),
        false => Ok(text.to_owned()),
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
