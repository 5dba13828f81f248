//! Builder of the `base` root filesystem: busybox for everything a shell expects, bash, git with what it
//! needs to reach http and https servers, the C library for programs people bring along. No package
//! manager, no perl.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::apt::Apt;
use super::full::Workshop;
use super::run::run;
use super::staged::{self, Staged};
use super::{elf, etc};
use crate::tree::Owners;
use crate::{Error, Package, Result};

/// Packages taken without their dependencies: git's need perl for what is left out. The
/// dependencies of libcurl, which git depends on under a name that differs per suite, are taken
/// too.
pub(super) const PACKAGES: [&str; 9] = [
    "bash",
    "busybox-static",
    staged::PACKAGE,
    "git",
    "libc6",
    "libgcc-s1",
    "libpcre2-8-0",
    "libtinfo6",
    "zlib1g",
];
const CURL: &str = "libcurl";

const LIBRARY_FOLDER: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";
/// Libraries for programs that people bring along; those of the chosen programs are added
/// automatically.
const LIBRARIES: [&str; 14] = [
    LOADER,
    "libanl.so.1",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libnss_dns.so.2",
    "libnss_files.so.2",
    "libpcre2-8.so.0",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
    "libutil.so.1",
    "libz.so.1",
];

/// Compiled helpers of git that are kept; the others serve networks, or need 2 MB each for very old
/// servers (`git-http-push` is WebDAV's).
pub(super) const GIT_PROGRAMS: [&str; 2] = ["git-remote-http", "git-sh-i18n--envsubst"];
const GIT_CORE: &str = "usr/lib/git-core";
const GIT_TEMPLATES: &str = "usr/share/git-core/templates";

/// Makes the tree in the work folder; returns it with its packages.
pub(super) async fn make(
    shop: &Workshop<'_>,
    apt: &Apt<'_>,
) -> Result<(PathBuf, Owners, Vec<Package>)> {
    let staged = stage(shop, apt).await?;
    let mut list = Command::new(staged.find("busybox-static", "usr/bin/busybox")?);
    list.arg("--list-full");
    let applets = run(list, Duration::from_secs(30), shop.cancel).await?;

    let tree = shop.work.join("tree");
    let target = tree.clone();
    let suite = shop.suite;
    let (owners, packages) = shop
        .store
        .blocking(move |_| {
            let tree = Tree(target);
            etc::folders(&tree.0)?;
            tree.copy_libraries(&staged)?;
            tree.copy_git(&staged)?;
            tree.copy_bash(&staged)?;
            tree.copy(&staged.find("busybox-static", "usr/bin/busybox")?, "usr/bin/busybox")?;
            tree.link_applets(&applets)?;
            etc::base_files(&tree.0, suite)?;
            let trusted =
                staged::certificate_bundle(&staged.find(staged::PACKAGE, staged::CERTIFICATES)?)?;
            tree.write(staged::CERTIFICATE_BUNDLE, &trusted)?;
            tree.check_libraries()?;
            let mut owners = HashMap::new();
            etc::add_user(&tree.0, &mut owners)?;
            Ok((owners, staged.used()))
        })
        .await?;
    Ok((tree, Owners::for_builder(owners), packages))
}

/// Downloads and unpacks the packages that files are taken from.
async fn stage(shop: &Workshop<'_>, apt: &Apt<'_>) -> Result<Staged> {
    let folder = shop.work.join("packages");
    let curl = apt.depends("git").await?;
    let curl: Vec<_> = curl.iter().map(String::as_str).filter(|it| it.starts_with(CURL)).collect();
    if curl.is_empty() {
        return Err(Error::Rootfs { reason: format!("git depends on no {CURL}") });
    }
    let below = apt.closure(&curl).await?;
    let mut names: Vec<_> = below.iter().map(String::as_str).chain(PACKAGES).collect();
    names.sort_unstable();
    names.dedup();
    let debs = apt.download(&names).await?;
    for deb in &debs {
        apt.unpack(deb, &Staged::place(&folder, &deb.package)).await?;
    }
    Ok(Staged::new(folder, debs))
}

/// Filesystem in the making.
struct Tree(PathBuf);

impl Tree {
    /// Copies a file with its permissions; a link is followed.
    fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let to = self.0.join(to);
        etc::parent_folders(&to)?;
        fs::copy(from, &to).map_err(Error::io("copy", from))?;
        Ok(())
    }

    /// Writes a file that everybody may read.
    fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.0.join(path);
        etc::parent_folders(&path)?;
        etc::file(&path, 0o644, text)
    }

    fn link(&self, path: &str, target: &str) -> Result<()> {
        let path = self.0.join(path);
        etc::parent_folders(&path)?;
        symlink(target, &path).map_err(Error::io("link", &path))
    }

    fn copy_libraries(&self, staged: &Staged) -> Result<()> {
        for name in LIBRARIES {
            let path = format!("{LIBRARY_FOLDER}/{name}");
            self.copy(&staged.find_anywhere(&path)?, &path)?;
        }
        self.link(&format!("usr/lib64/{LOADER}"), &format!("../lib/x86_64-linux-gnu/{LOADER}"))
    }

    /// Copies every library that a program needs, transitively.
    fn copy_needed(&self, staged: &Staged, program: &Path) -> Result<()> {
        let mut looked_at = vec![program.to_owned()];
        while let Some(file) = looked_at.pop() {
            for library in needed(&file)? {
                let path = format!("{LIBRARY_FOLDER}/{library}");
                if !self.0.join(&path).exists() {
                    let found = staged.find_anywhere(&path)?;
                    self.copy(&found, &path)?;
                    looked_at.push(found);
                }
            }
        }
        Ok(())
    }

    fn copy_git(&self, staged: &Staged) -> Result<()> {
        self.copy(&staged.find("git", "usr/bin/git")?, "usr/bin/git")?;
        for name in ["git-receive-pack", "git-upload-archive", "git-upload-pack"] {
            self.link(&format!("usr/bin/{name}"), "git")?;
        }
        let core = staged.find("git", GIT_CORE)?;
        for entry in fs::read_dir(&core).map_err(Error::io("list", &core))? {
            let path = entry.map_err(Error::io("list", &core))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let target = format!("{GIT_CORE}/{name}");
            if name == "git" {
                self.link(&target, "../../bin/git")?;
            } else if let Ok(link) = fs::read_link(&path) {
                let to = link.to_str().unwrap_or_default();
                if to == "git" || GIT_PROGRAMS.contains(&to) {
                    self.link(&target, to)?;
                }
            } else if path.is_file() && runs_here(&path, &name)? {
                self.copy(&path, &target)?;
                self.copy_needed(staged, &path)?;
            }
        }
        // Sample hooks are left out: they would be written into every repository.
        for name in ["description", "info/exclude"] {
            let path = format!("{GIT_TEMPLATES}/{name}");
            self.copy(&staged.find("git", &path)?, &path)?;
        }
        Ok(())
    }

    fn copy_bash(&self, staged: &Staged) -> Result<()> {
        let bash = staged.find("bash", "usr/bin/bash")?;
        self.copy(&bash, "usr/bin/bash")?;
        self.copy_needed(staged, &bash)
    }

    /// Makes the links of busybox. `list` is the output of `busybox --list-full`: one path per
    /// applet, without a leading slash.
    fn link_applets(&self, list: &str) -> Result<()> {
        for line in list.lines() {
            let Some((folder, name)) = line.rsplit_once('/') else {
                continue;
            };
            let (folder, target) = if folder.ends_with("sbin") {
                ("usr/sbin", "../bin/busybox")
            } else {
                ("usr/bin", "busybox")
            };
            let path = format!("{folder}/{name}");
            if self.0.join(&path).symlink_metadata().is_err() {
                self.link(&path, target)?;
            }
        }
        for name in etc::EXPECTED_COMMANDS {
            if !self.0.join("usr/bin").join(name).exists() {
                return Err(Error::Rootfs { reason: format!("this busybox has no {name}") });
            }
        }
        Ok(())
    }

    /// Checks that every library a program needs exists; otherwise it would die at its start.
    fn check_libraries(&self) -> Result<()> {
        for folder in ["usr/bin", GIT_CORE, LIBRARY_FOLDER] {
            let folder = self.0.join(folder);
            for entry in fs::read_dir(&folder).map_err(Error::io("list", &folder))? {
                let entry = entry.map_err(Error::io("list", &folder))?;
                if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                    continue;
                }
                for library in needed(&entry.path())? {
                    if !self.0.join(LIBRARY_FOLDER).join(&library).exists() {
                        return Err(Error::Rootfs {
                            reason: format!(
                                "{} needs {library}, which no chosen package has",
                                entry.file_name().display()
                            ),
                        });
                    }
                }
            }
        }
        Ok(())
    }
}

/// Libraries that a file needs; empty if it is not a program.
fn needed(path: &Path) -> Result<Vec<String>> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    if !elf::is_elf(&bytes) {
        return Ok(Vec::new());
    }
    elf::needed(&bytes)
        .map_err(|error| Error::Rootfs { reason: format!("{}: {error}", path.display()) })
}

/// True if one of git's helpers can run in this image: shell scripts and what they source, and the
/// few programs that were chosen.
fn runs_here(path: &Path, name: &str) -> Result<bool> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    if elf::is_elf(&bytes) {
        return Ok(GIT_PROGRAMS.contains(&name));
    }
    Ok(!bytes.starts_with(b"#!") || bytes.starts_with(b"#!/bin/sh"))
}
