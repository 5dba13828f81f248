//! Builder of root filesystems from Debian's packages: a minimal Debian by mmdebstrap with some more, unpacked here so that
//! it works for any builder. Root gives the files their owners; anyone else gets a list of them,
//! for the filesystem image.
//!
//! A flavour is what an image has on top. Of `code-interpreter`, only the daemon starts the server, when code is first run.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::full::Workshop;
use super::run::{run, tool};
use super::{apt, etc};
use crate::tree::Owners;
use crate::{Error, FileOwner, Package, Result};

const LIMIT: Duration = Duration::from_secs(3600);

/// Makes the tree in the work folder; returns it with its packages.
pub(super) async fn make(
    shop: &Workshop<'_>,
    flavour: &'static Flavour,
) -> Result<(PathBuf, Owners, Vec<Package>)> {
    let archive = shop.work.join("debian.tar");
    bootstrap(shop, flavour.include, &archive).await?;
    let tree = shop.work.join("tree");
    let target = tree.clone();
    let (owners, packages) = shop
        .store
        .blocking(move |_| {
            let mut owners = unpack(&archive, &target)?;
            etc::debian_files(&target)?;
            etc::add_user(&target, &mut owners)?;
            for (path, mode, text) in flavour.files {
                etc::file(&target.join(path), *mode, text)?;
            }
            if flavour.users_workspace {
                etc::give_to_user(&target, etc::WORKSPACE, &mut owners)?;
            }
            for name in etc::EXPECTED_COMMANDS {
                if target.join("usr/bin").join(name).symlink_metadata().is_err() {
                    return Err(Error::Rootfs {
                        reason: format!("no installed package has the command {name}"),
                    });
                }
            }
            Ok((owners, installed(&target)?))
        })
        .await?;
    Ok((tree, Owners::for_builder(owners), packages))
}

async fn bootstrap(shop: &Workshop<'_>, include: &str, archive: &Path) -> Result<()> {
    let sources = shop.work.join("debian.list");
    fs::write(&sources, apt::sources(shop.suite)).map_err(Error::io("write", &sources))?;
    let root = rustix::process::geteuid().is_root();
    let mut mmdebstrap = Command::new(tool("mmdebstrap")?);
    mmdebstrap
        .args(["--quiet", "--variant=minbase", "--format=tar", "--architectures=amd64"])
        .arg(if root { "--mode=root" } else { "--mode=unshare" })
        .arg(format!("--include={include}"))
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        .args(apt::host_acquire(shop.cancel).await?.iter().map(|line| format!("--aptopt={line}")))
        .args(LEFT_OUT.map(|name| format!("--dpkgopt=path-exclude=/usr/share/{name}/*")))
        .arg("--dpkgopt=path-include=/usr/share/doc/*/copyright")
        .arg(shop.suite.as_str())
        .arg(archive)
        .arg(&sources);
    if root {
        // A crashed build's leftovers are found in the work folder. Without root the build runs
        // under other user ids, which often cannot enter the store's folder.
        mmdebstrap.env("TMPDIR", &shop.work);
    }
    run(mmdebstrap, LIMIT, shop.cancel).await?;
    Ok(())
}

/// True for entries of the archive that the image does not take: devices (the guest mounts its
/// own), and the host's download settings.
fn left_behind(path: &str) -> bool {
    path.starts_with("dev/") || path == "etc/apt/apt.conf.d/99mmdebstrap"
}

/// Unpacks the archive and returns the owners of everything that is not root's. Blocks.
fn unpack(archive: &Path, tree: &Path) -> Result<HashMap<String, FileOwner>> {
    let doing = "unpack";
    fs::create_dir(tree).map_err(Error::io("create", tree))?;
    fs::set_permissions(tree, fs::Permissions::from_mode(0o755))
        .map_err(Error::io("chmod", tree))?;
    let file = File::open(archive).map_err(Error::io("open", archive))?;
    let mut tar = tar::Archive::new(file);
    tar.set_preserve_permissions(true);
    tar.set_preserve_ownerships(rustix::process::geteuid().is_root());
    tar.set_unpack_xattrs(rustix::process::geteuid().is_root());
    let mut owners = HashMap::new();
    for entry in tar.entries().map_err(Error::io(doing, archive))? {
        let mut entry = entry.map_err(Error::io(doing, archive))?;
        let path = entry.path().map_err(Error::io(doing, archive))?.into_owned();
        let name = path.to_string_lossy();
        let name = name.trim_start_matches("./").trim_end_matches('/');
        if name.is_empty() || name == "." || left_behind(name) {
            continue;
        }
        let id = |id: std::io::Result<u64>| {
            let id = id.and_then(|id| u32::try_from(id).map_err(std::io::Error::other));
            id.map_err(Error::io(doing, archive))
        };
        let header = entry.header();
        let owner = FileOwner { uid: id(header.uid())?, gid: id(header.gid())?, capability: None };
        if owner != FileOwner::default() {
            owners.insert(name.to_owned(), owner);
        }
        entry.unpack_in(tree).map_err(Error::io(doing, &path))?;
    }
    Ok(owners)
}

/// Packages that dpkg lists as installed.
fn installed(tree: &Path) -> Result<Vec<Package>> {
    let status = tree.join("var/lib/dpkg/status");
    let text = fs::read_to_string(&status).map_err(Error::io("read", &status))?;
    let field = |stanza: &str, key: &str| {
        stanza
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
            .map(str::to_owned)
    };
    let mut packages: Vec<_> = text
        .split("\n\n")
        .filter_map(|stanza| {
            Some(Package { name: field(stanza, "Package")?, version: field(stanza, "Version")? })
        })
        .collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

/// Folders left out of every package, now and when the workspace installs more.
const LEFT_OUT: [&str; 4] = ["man", "doc", "locale", "info"];

/// Additions of an image to the minimal system.
pub(super) struct Flavour {
    /// Names of packages, separated by commas; what they depend on is added.
    pub(super) include: &'static str,
    /// Additional files, in folders that the packages have: path, permissions, content.
    pub(super) files: &'static [(&'static str, u32, &'static str)],
    /// Whether the folder of workspaces is the user's, and not root's.
    pub(super) users_workspace: bool,
}

/// Flavour of the image `debian`.
pub(super) const PLAIN: Flavour =
    Flavour { include: "git,ca-certificates,procps", files: &[], users_workspace: false };

impl Flavour {
    /// Everything that decides the content, as text.
    pub(super) fn recipe(&self) -> String {
        let files: String = self
            .files
            .iter()
            .map(|(path, mode, text)| format!("\n{path} {mode:o}\n{text}"))
            .collect();
        let owned = if self.users_workspace { "\nowned" } else { "" };
        format!("{} -{}{files}{owned}", self.include, LEFT_OUT.join("-"))
    }
}

/// Packages that the server needs, and those that programs written for sandboxes expect.
const INTERPRETER_PACKAGES: &str = "bash,ca-certificates,curl,git,procps,python-is-python3,python3,python3-ipykernel,\
                        python3-pip,python3-venv,sudo";

/// See the module.
pub(super) const CODE_INTERPRETER: Flavour = Flavour {
    include: INTERPRETER_PACKAGES,
    files: &[
        ("usr/lib/code-interpreter", 0o755, include_str!("../../assets/code-interpreter.py")),
        ("etc/sudoers.d/user", 0o440, "user ALL=(ALL:ALL) NOPASSWD: ALL\n"),
        // pip adds to the user's own packages; the system is nobody else's.
        ("etc/pip.conf", 0o644, "[global]\nbreak-system-packages = true\n"),
    ],
    users_workspace: true,
};
