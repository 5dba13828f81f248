//! Closed sets of names: images, Debian suites, kernels.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Error;

/// Images that can be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageName {
    /// Busybox and git: a few megabytes, no package manager.
    Base,
    /// A minimal Debian with git, certificates and apt.
    Debian,
}

impl ImageName {
    /// Every image, in the order they are listed.
    pub const ALL: [Self; 2] = [Self::Base, Self::Debian];

    /// Name as people type it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Debian => "debian",
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ImageName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        pick("image", &Self::ALL, Self::as_str, text)
    }
}

fn pick<T: Copy>(
    what: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
    asked: &str,
) -> Result<T, Error> {
    all.iter().copied().find(|value| name(*value) == asked).ok_or_else(|| Error::Unknown {
        what,
        asked: asked.to_owned(),
        known: all.iter().map(|value| name(*value)).collect::<Vec<_>>().join(", "),
    })
}

/// Debian releases whose packages images are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// Debian 12.
    Bookworm,
    /// Debian 13.
    Trixie,
}

impl Suite {
    /// Every suite, oldest first.
    pub const ALL: [Self; 2] = [Self::Bookworm, Self::Trixie];

    /// Suite that an `/etc/os-release` text names, if it is one of these.
    pub fn from_os_release(text: &str) -> Option<Self> {
        let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
        name.trim_matches('"').parse().ok()
    }

    /// Code name, as in the archive.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }

    /// Release number of the suite.
    pub fn version(self) -> u32 {
        match self {
            Self::Bookworm => 12,
            Self::Trixie => 13,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Suite {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        pick("suite", &Self::ALL, Self::as_str, text)
    }
}

/// Origin of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelChoice {
    /// Cloud kernel of Debian, downloaded and unpacked: seconds.
    Debian,
    /// Small kernel, compiled from Debian's source with `examples/mini-kernel.fragment`: 20 minutes
    /// of one core, and about a second less for each boot in software emulation.
    Small,
}

impl KernelChoice {
    /// Every choice, the default first.
    pub const ALL: [Self; 2] = [Self::Debian, Self::Small];

    /// Name as people type it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debian => "debian",
            Self::Small => "small",
        }
    }
}

impl fmt::Display for KernelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for KernelChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        pick("kernel", &Self::ALL, Self::as_str, text)
    }
}
