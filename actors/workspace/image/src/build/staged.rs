//! Unpacked packages, and what is taken from them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::apt::Deb;
use crate::{Error, Package, Result};

/// A folder a package, below one.
pub(super) struct Staged {
    folder: PathBuf,
    packages: Vec<Package>,
    /// Names of those that something was taken from.
    used: RefCell<BTreeSet<String>>,
}

impl Staged {
    pub(super) fn new(folder: PathBuf, debs: Vec<Deb>) -> Self {
        let packages = debs.into_iter().map(|deb| deb.package).collect();
        Self { folder, packages, used: RefCell::default() }
    }

    /// Where a package is unpacked to.
    pub(super) fn place(folder: &Path, package: &Package) -> PathBuf {
        folder.join(&package.name)
    }

    /// A file by the name it has once `/bin`, `/lib` and so on are links into `/usr`; older
    /// packages still carry the short form.
    pub(super) fn find(&self, package: &str, path: &str) -> Result<PathBuf> {
        self.look(package, path)
            .ok_or_else(|| Error::Rootfs { reason: format!("package {package} holds no /{path}") })
    }

    pub(super) fn find_anywhere(&self, path: &str) -> Result<PathBuf> {
        self.packages
            .iter()
            .find_map(|package| self.look(&package.name, path))
            .ok_or_else(|| Error::Rootfs { reason: format!("no package holds /{path}") })
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

    /// The packages that something was taken from.
    pub(super) fn used(self) -> Vec<Package> {
        let used = self.used.into_inner();
        self.packages.into_iter().filter(|package| used.contains(&package.name)).collect()
    }
}
