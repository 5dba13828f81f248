//! What has to be on the host before images can be built.

use serde::Serialize;

use super::build::run::tool;

/// What a requirement is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Making workspace disks.
    Overlay,
    /// Building any image.
    Build,
    /// Building the `debian` image.
    BuildDebian,
    /// Compiling the small kernel.
    BuildSmallKernel,
}

/// One thing a build needs, and whether it is there.
#[derive(Debug, Clone, Serialize)]
pub struct Requirement {
    /// The program or file.
    pub what: &'static str,
    /// What cannot be done without it.
    pub purpose: Purpose,
    /// Whether this host has it.
    pub found: bool,
    /// How to get it.
    pub remedy: &'static str,
}

/// Debian's archive keys: packages are taken only if these signed their index.
pub(super) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

const PROGRAMS: [(&str, Purpose, &str); 15] = [
    ("qemu-img", Purpose::Overlay, "install package qemu-utils"),
    ("apt-get", Purpose::Build, "build on Debian 12 or 13"),
    ("apt-cache", Purpose::Build, "build on Debian 12 or 13"),
    ("apt-config", Purpose::Build, "build on Debian 12 or 13"),
    ("dpkg-deb", Purpose::Build, "install package dpkg"),
    ("mke2fs", Purpose::Build, "install package e2fsprogs"),
    ("tune2fs", Purpose::Build, "install package e2fsprogs"),
    ("e2fsck", Purpose::Build, "install package e2fsprogs"),
    ("debugfs", Purpose::Build, "install package e2fsprogs"),
    ("mmdebstrap", Purpose::BuildDebian, "install package mmdebstrap"),
    ("gcc", Purpose::BuildSmallKernel, "install package build-essential"),
    ("make", Purpose::BuildSmallKernel, "install package build-essential"),
    ("flex", Purpose::BuildSmallKernel, "install package flex"),
    ("bison", Purpose::BuildSmallKernel, "install package bison"),
    ("bc", Purpose::BuildSmallKernel, "install package bc"),
];

const FILES: [(&str, Purpose, &str); 2] = [
    (KEYRING, Purpose::Build, "install package debian-archive-keyring"),
    ("/usr/include/libelf.h", Purpose::BuildSmallKernel, "install package libelf-dev"),
];

/// Everything the image module may need, in the order it is used. Looks only; changes nothing.
pub fn requirements() -> Vec<Requirement> {
    let programs = PROGRAMS.iter().map(|(what, purpose, remedy)| Requirement {
        what,
        purpose: *purpose,
        found: tool(what).is_ok(),
        remedy,
    });
    let files = FILES.iter().map(|(what, purpose, remedy)| Requirement {
        what,
        purpose: *purpose,
        found: std::path::Path::new(what).exists(),
        remedy,
    });
    // mmdebstrap without root works in a user namespace with several ids.
    let mapping = (!rustix::process::geteuid().is_root()).then(|| Requirement {
        what: "newuidmap",
        purpose: Purpose::BuildDebian,
        found: tool("newuidmap").is_ok(),
        remedy: "install package uidmap, or build as root",
    });
    programs.chain(files).chain(mapping).collect()
}
