//! Requirements check: what a host needs before images can be built.

use serde::Serialize;

use self::Remedy::{Otherwise, Package};
use super::build::run::tool;

/// Purpose of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequirementPurpose {
    /// Making workspace disks.
    Overlay,
    /// Building any image.
    Build,
    /// Building the `debian` image.
    BuildDebian,
    /// Compiling the small kernel.
    BuildSmallKernel,
}

/// Requirement of a build, and whether the host meets it.
#[derive(Debug, Clone, Serialize)]
pub struct Requirement {
    /// Name of the program or path of the file.
    pub what: &'static str,
    /// Purpose that fails without it.
    pub purpose: RequirementPurpose,
    /// True if this host has it.
    pub found: bool,
    /// Way to get it.
    pub remedy: Remedy,
}

/// Way to get what is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Install this package; the name is Debian's.
    Package(&'static str),
    /// Something other than a package.
    Otherwise(&'static str),
}

impl std::fmt::Display for Remedy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Package(name) => write!(f, "install package {name}"),
            Self::Otherwise(what) => f.write_str(what),
        }
    }
}

/// Keyring of Debian's archive: packages are taken only if these keys signed their index.
pub(super) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

const PROGRAMS: [(&str, RequirementPurpose, Remedy); 15] = [
    ("qemu-img", RequirementPurpose::Overlay, Package("qemu-utils")),
    ("apt-get", RequirementPurpose::Build, Otherwise("build on Debian 12 or 13")),
    ("apt-cache", RequirementPurpose::Build, Otherwise("build on Debian 12 or 13")),
    ("apt-config", RequirementPurpose::Build, Otherwise("build on Debian 12 or 13")),
    ("dpkg-deb", RequirementPurpose::Build, Package("dpkg")),
    ("mke2fs", RequirementPurpose::Build, Package("e2fsprogs")),
    ("tune2fs", RequirementPurpose::Build, Package("e2fsprogs")),
    ("e2fsck", RequirementPurpose::Build, Package("e2fsprogs")),
    ("debugfs", RequirementPurpose::Build, Package("e2fsprogs")),
    ("mmdebstrap", RequirementPurpose::BuildDebian, Package("mmdebstrap")),
    ("gcc", RequirementPurpose::BuildSmallKernel, Package("build-essential")),
    ("make", RequirementPurpose::BuildSmallKernel, Package("build-essential")),
    ("flex", RequirementPurpose::BuildSmallKernel, Package("flex")),
    ("bison", RequirementPurpose::BuildSmallKernel, Package("bison")),
    ("bc", RequirementPurpose::BuildSmallKernel, Package("bc")),
];

const FILES: [(&str, RequirementPurpose, Remedy); 2] = [
    (KEYRING, RequirementPurpose::Build, Package("debian-archive-keyring")),
    ("/usr/include/libelf.h", RequirementPurpose::BuildSmallKernel, Package("libelf-dev")),
];

/// Lists everything that image builds may need, in the order of use. Changes nothing.
pub fn requirements() -> Vec<Requirement> {
    let programs = PROGRAMS.iter().map(|(what, purpose, remedy)| Requirement {
        what,
        purpose: *purpose,
        found: tool(what).is_ok(),
        remedy: *remedy,
    });
    let files = FILES.iter().map(|(what, purpose, remedy)| Requirement {
        what,
        purpose: *purpose,
        found: std::path::Path::new(what).exists(),
        remedy: *remedy,
    });
    // mmdebstrap without root works in a user namespace with several ids.
    let mapping = (!rustix::process::geteuid().is_root()).then(|| Requirement {
        what: "newuidmap",
        purpose: RequirementPurpose::BuildDebian,
        found: tool("newuidmap").is_ok(),
        remedy: Package("uidmap"),
    });
    programs.chain(files).chain(mapping).collect()
}
