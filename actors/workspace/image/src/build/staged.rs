//! Staging area of unpacked packages that tracks what is taken from them, and the certificate bundle of `base`: the
//! file that Debian's `update-ca-certificates` would write. Made here, because a build runs no package's scripts.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::apt::Deb;
use crate::{Error, Package, Result};

/// Unpacked packages, one folder per package below a common one.
pub(super) struct Staged {
    folder: PathBuf,
    packages: Vec<Package>,
    /// Names of the packages that something was taken from.
    used: RefCell<BTreeSet<String>>,
}

impl Staged {
    pub(super) fn new(folder: PathBuf, debs: Vec<Deb>) -> Self {
        let packages = debs.into_iter().map(|deb| deb.package).collect();
        Self { folder, packages, used: RefCell::default() }
    }

    /// Folder that a package is unpacked to.
    pub(super) fn place(folder: &Path, package: &Package) -> PathBuf {
        folder.join(&package.name)
    }

    /// Path of a file by its merged-`/usr` name; older packages still use the short form.
    pub(super) fn find(&self, package: &str, path: &str) -> Result<PathBuf> {
        self.look(package, path).ok_or_else(|| Error::Rootfs {
            reason: format!("package {package} does not contain /{path}"),
        })
    }

    pub(super) fn find_anywhere(&self, path: &str) -> Result<PathBuf> {
        self.packages
            .iter()
            .find_map(|package| self.look(&package.name, path))
            .ok_or_else(|| Error::Rootfs { reason: format!("no package contains /{path}") })
    }

    fn look(&self, package: &str, path: &str) -> Option<PathBuf> {
        let folder = self.folder.join(package);
        let short = path.strip_prefix("usr/").unwrap_or(path);
        let found = [path, short].map(|name| folder.join(name)).into_iter().find(|it| it.exists());
        if found.is_some() {
            self.used.borrow_mut().insert(package.to_owned());
        }
        found
    }

    /// Packages that something was taken from.
    pub(super) fn used(self) -> Vec<Package> {
        let used = self.used.into_inner();
        self.packages.into_iter().filter(|package| used.contains(&package.name)).collect()
    }
}

/// Package of the certificates.
pub(super) const PACKAGE: &str = "ca-certificates";
/// Folder in the package with the certificates, one file each.
pub(super) const CERTIFICATES: &str = "usr/share/ca-certificates/mozilla";
/// Path where curl's, GnuTLS's and most other libraries of Debian look.
pub(super) const CERTIFICATE_BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// All certificates of a folder in one text, in the order of their files' names: the same
/// package makes the same text. Blocks.
pub(super) fn certificate_bundle(folder: &Path) -> Result<String> {
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
