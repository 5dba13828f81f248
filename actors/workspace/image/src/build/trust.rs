//! Certificate bundle of `base`: the file that Debian's `update-ca-certificates` would write. Made
//! here, because a build runs no package's scripts.

use std::fs;
use std::path::Path;

use crate::{Error, Result};

/// Package of the certificates.
pub(super) const PACKAGE: &str = "ca-certificates";
/// Folder in the package with the certificates, one file each.
pub(super) const CERTIFICATES: &str = "usr/share/ca-certificates/mozilla";
/// Path where curl's, GnuTLS's and most other libraries of Debian look.
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
            let reason = format!("{} is not a PEM certificate", path.display());
            return Err(Error::Rootfs { reason });
        }
        all.push_str(text.trim_end());
        all.push('\n');
    }
    if all.is_empty() {
        return Err(Error::Rootfs {
            reason: format!("{} does not contain a .crt file", folder.display()),
        });
    }
    Ok(all)
}
