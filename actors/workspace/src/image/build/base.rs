//! The `base` root filesystem: busybox for everything a shell expects, git for local work, the
//! C library for programs people bring along. No package manager, no perl, no TLS.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::apt::Apt;
use super::full::Workshop;
use super::run::run;
use super::{elf, etc};
use crate::image::tree::Owners;
use crate::image::{Error, Package, Result};

/// Unpacked, without their dependencies: git's need perl and a TLS stack for what is left out.
pub(super) const PACKAGES: [&str; 6] =
    ["busybox-static", "git", "libc6", "libgcc-s1", "libpcre2-8-0", "zlib1g"];

const LIBRARY_FOLDER: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";
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

/// Git's own helpers that are programs; the others serve networks or need 2 MB each for little.
const GIT_PROGRAMS: [&str; 1] = ["git-sh-i18n--envsubst"];
const GIT_CORE: &str = "usr/lib/git-core";
const GIT_TEMPLATES: &str = "usr/share/git-core/templates";

/// Makes the tree in the work folder; answers it with its packages.
pub(super) async fn make(
    shop: &Workshop<'_>,
    apt: &Apt<'_>,
) -> Result<(PathBuf, Owners, Vec<Package>)> {
    let staging = shop.work.join("packages");
    let debs = apt.download(&PACKAGES).await?;
    for deb in &debs {
        apt.unpack(deb, &staging.join(&deb.package.name)).await?;
    }
    let staged = Staged(staging);
    let mut list = Command::new(staged.find("busybox-static", "usr/bin/busybox")?);
    list.arg("--list-full");
    let applets = run(list, Duration::from_secs(30), shop.cancel).await?;

    let tree = shop.work.join("tree");
    let target = tree.clone();
    let suite = shop.suite;
    shop.store
        .blocking(move |_| {
            let tree = Tree(target);
            etc::folders(&tree.0)?;
            tree.copy_libraries(&staged)?;
            tree.copy_git(&staged)?;
            tree.copy(&staged.find("busybox-static", "usr/bin/busybox")?, "usr/bin/busybox")?;
            tree.link_applets(&applets)?;
            etc::base_files(&tree.0, suite)?;
            tree.check_libraries()
        })
        .await?;
    let packages = debs.into_iter().map(|deb| deb.package).collect();
    Ok((tree, Owners::for_builder(HashMap::new()), packages))
}

/// Unpacked packages, a folder each.
struct Staged(PathBuf);

impl Staged {
    /// A file by the name it has once `/bin`, `/lib` and so on are links into `/usr`; older
    /// packages still carry the short form.
    fn find(&self, package: &str, path: &str) -> Result<PathBuf> {
        let folder = self.0.join(package);
        let short = path.strip_prefix("usr/").unwrap_or(path);
        [path, short]
            .map(|name| folder.join(name))
            .into_iter()
            .find(|file| file.exists())
            .ok_or_else(|| Error::Rootfs { reason: format!("package {package} holds no /{path}") })
    }

    fn find_anywhere(&self, path: &str) -> Result<PathBuf> {
        PACKAGES
            .iter()
            .find_map(|package| self.find(package, path).ok())
            .ok_or_else(|| Error::Rootfs { reason: format!("no package holds /{path}") })
    }
}

/// The filesystem being put together.
struct Tree(PathBuf);

impl Tree {
    /// Copies a file with its permissions; a link is followed.
    fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let to = self.0.join(to);
        etc::parent_folders(&to)?;
        fs::copy(from, &to).map_err(Error::io("copy", from))?;
        Ok(())
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
                if link == Path::new("git") {
                    self.link(&target, "git")?;
                }
            } else if path.is_file() && runs_here(&path, &name)? {
                self.copy(&path, &target)?;
            }
        }
        // Without the sample hooks: they would be written into every repository.
        for name in ["description", "info/exclude"] {
            let path = format!("{GIT_TEMPLATES}/{name}");
            self.copy(&staged.find("git", &path)?, &path)?;
        }
        Ok(())
    }

    /// `list` is the answer of `busybox --list-full`: a path an applet, without a leading slash.
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

    /// Every library a program asks for has to be there, or it dies at its start.
    fn check_libraries(&self) -> Result<()> {
        for folder in ["usr/bin", GIT_CORE, LIBRARY_FOLDER] {
            let folder = self.0.join(folder);
            for entry in fs::read_dir(&folder).map_err(Error::io("list", &folder))? {
                let entry = entry.map_err(Error::io("list", &folder))?;
                if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                    continue;
                }
                let bytes = fs::read(entry.path()).map_err(Error::io("read", entry.path()))?;
                if !elf::is_elf(&bytes) {
                    continue;
                }
                let needed = elf::needed(&bytes).map_err(|error| Error::Rootfs {
                    reason: format!("{}: {error}", entry.path().display()),
                })?;
                for library in needed {
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

/// Whether one of git's helpers can work in this image: shell scripts and what they source, and
/// the few programs that were chosen.
fn runs_here(path: &Path, name: &str) -> Result<bool> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    if elf::is_elf(&bytes) {
        return Ok(GIT_PROGRAMS.contains(&name));
    }
    Ok(!bytes.starts_with(b"#!") || bytes.starts_with(b"#!/bin/sh"))
}
