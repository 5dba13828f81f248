//! Whom TLS clients in `base` trust: the file that Debian's `update-ca-certificates` would write.
//! It is made here, for a build runs no package's scripts.

use std::fs;
use std::path::Path;

use crate::{Error, Result};

/// The package, and where in it the certificates are, a file each.
pub(super) const PACKAGE: &str = "ca-certificates";
pub(super) const CERTIFICATES: &str = "usr/share/ca-certificates/mozilla";
/// Where curl's, GnuTLS's and most other libraries of Debian look.
pub(super) const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// All certificates of a folder in one text, in the order of their files' names: the same
/// package makes the same text. Blocks.
pub(super) fn bundle(folder: &Path) -> Result<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let path = entry.map_err(Error::io("list", folder))?.path();
        if path.extension().is_some_and(|kind| kind == "crt") {
            files.push(path);
        }
    }
    files.sort();
    let mut all = String::new();
    for path in &files {
        let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
        if !text.starts_with(BEGIN) {
            let reason = format!("{} is no certificate in PEM", path.display());
            return Err(Error::Rootfs { reason });
        }
        all.push_str(text.trim_end());
        all.push('\n');
    }
    if all.is_empty() {
        return Err(Error::Rootfs { reason: format!("{} holds no .crt file", folder.display()) });
    }
    Ok(all)
}
