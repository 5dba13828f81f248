//! Requirements of volumes on a host.

use std::{env, path::Path};

use crate::images::{MKFS, MOUNT};

/// Lack of a host: what it is, what to do about it, and the package that brings it.
pub(crate) type Lack = (String, &'static str, Option<&'static str>);

/// Requirements that this host lacks.
pub(crate) fn missing() -> Vec<Lack> {
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        let what = "volumes are mounted by a daemon that is root, and this one is not".to_owned();
        missing.push((what, "run the daemon as root, as docs/hivekeep.service does", None));
    }
    if !Path::new("/dev/loop-control").exists() {
        let what = "/dev/loop-control is missing: this host has no loop devices".to_owned();
        missing.push((what, "load the kernel's module `loop`", None));
    }
    for (program, package) in [(MKFS, "e2fsprogs"), (MOUNT, "mount")] {
        if !in_path(program) {
            let what = format!("{program} is not installed");
            missing.push((what, "install its package", Some(package)));
        }
    }
    missing
}

fn in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
