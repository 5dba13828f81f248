//! What scenes need of the host that they run on.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Command,
};

use hivekeep_network::Namespace;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::scenes::examples;

/// Names the guest daemon.
pub const GUEST: &str = "TEST_HIVEKEEP_GUEST";
/// Names the folder of images.
pub const IMAGES: &str = "TEST_HIVEKEEP_IMAGES";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// A file or folder that a variable names, and the command that makes it and names it so.
    Named(&'static str, &'static str),
    Program(&'static str),
    Image(&'static str),
    Example(&'static str),
    Root,
    Mounts,
    LoopDevices,
    Namespaces,
    WholeClone,
}

impl Need {
    /// Why it is not met and what helps; nothing when it is.
    fn missing(self) -> Option<String> {
        match self {
            Self::Named(variable, by) => match std::env::var_os(variable).map(PathBuf::from) {
                Some(path) if path.exists() => None,
                Some(path) => {
                    Some(format!("{variable} names nothing: {}: use `{by}`", path.display()))
                }
                None => Some(format!("{variable} is not set: use `{by}`")),
            },
            Self::Program(name) => (!is_installed(name))
                .then(|| format!("{name} is not installed: use `cargo xtask setup`")),
            Self::Image(name) => {
                let manifest = format!("images/{name}.json");
                let built = std::env::var_os(IMAGES)
                    .is_some_and(|images| Path::new(&images).join(manifest).exists());
                (!built).then(|| {
                    format!("the image {name} is not built: use `cargo xtask image {name}`")
                })
            }
            Self::Example(name) => (!examples::program(name).is_file())
                .then(|| format!("the example {name} is not built: use `cargo xtask test`")),
            Self::Root => (!rustix::process::geteuid().is_root())
                .then(|| "it takes the rights of root: run it as root".to_owned()),
            Self::Mounts => mounts()
                .err()
                .map(|error| format!("nothing can be mounted: {error}: run it as root")),
            Self::LoopDevices => (!Path::new("/dev/loop-control").exists())
                .then(|| "/dev/loop-control is missing: use `modprobe loop`".to_owned()),
            Self::Namespaces => {
                let made = Namespace::new();
                made.err()
                    .map(|error| format!("network namespaces are missing: {error}: run it as root"))
            }
            Self::WholeClone => (!is_whole_clone())
                .then(|| "this checkout lacks history: use `git fetch --unshallow`".to_owned()),
        }
    }
}

/// Needs that were looked for.
#[derive(Default)]
pub struct Host(HashMap<Need, Option<String>>);

impl Host {
    /// Why the first that is not met is not, and what helps.
    pub fn lacks(&mut self, needs: &[Need]) -> Option<String> {
        let mut lacks = |need: &Need| self.0.entry(*need).or_insert_with(|| need.missing()).clone();
        needs.iter().find_map(&mut lacks)
    }
}

/// The path that a variable names, which a scene needs.
pub fn named(variable: &str) -> PathBuf {
    std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set")).into()
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn mounts() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    mount("none", folder.path(), "tmpfs", MountFlags::empty(), None)?;
    Ok(unmount(folder.path(), UnmountFlags::DETACH)?)
}

fn is_whole_clone() -> bool {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--is-shallow-repository"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    git.output().is_ok_and(|output| output.stdout == b"false\n")
}
