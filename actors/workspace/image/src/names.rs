//! Names: images, the closed sets of Debian suites and kernels, and the content hash that names an object.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Name of an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageName {
    /// Busybox and git: a few megabytes, no package manager.
    Base,
    /// A minimal Debian with git, certificates and apt.
    Debian,
    /// Debian with Python and a server of Jupyter kernels.
    #[serde(rename = "code-interpreter")]
    CodeInterpreter,
    /// Container image that was pulled.
    #[serde(untagged)]
    Pulled(PulledName),
}

impl ImageName {
    /// Images that can be built, in the order they are listed.
    pub const BUILT: [Self; 3] = [Self::Base, Self::Debian, Self::CodeInterpreter];

    /// Name that an image has or could have.
    ///
    /// # Errors
    /// `Unknown` for a text that is no name.
    pub fn named(text: &str) -> Result<Self, Error> {
        text.parse().or_else(|error| PulledName::new(text).map(Self::Pulled).ok_or(error))
    }

    /// Name as people type it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Base => "base",
            Self::Debian => "debian",
            Self::CodeInterpreter => "code-interpreter",
            Self::Pulled(name) => &name.0,
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Parses the name of an image that can be built.
impl FromStr for ImageName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::BUILT.into_iter().find(|name| name.as_str() == text);
        found.ok_or_else(|| Error::Unknown {
            what: "image",
            asked: text.chars().take(300).collect(),
            known: Self::BUILT.map(|name| name.to_string()).join(", "),
        })
    }
}

/// Name of a pulled image: its reference, or a name that was given to it. 1 to 240 characters
/// that references have, beginning with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PulledName(Arc<str>);

impl PulledName {
    fn new(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/@".contains(&byte);
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        (first && text.len() <= 240 && text.bytes().all(plain)).then(|| Self(text.into()))
    }

    /// Name that was given to an image, since it names no registry.
    pub fn is_given(&self) -> bool {
        let folder = self.0.split_once('/').map(|(folder, _)| folder);
        let is_registry = folder.is_some_and(|it| it.contains('.') || it == "localhost");
        !is_registry && !self.0.contains([':', '@'])
    }
}

impl TryFrom<String> for PulledName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::new(&text).ok_or_else(|| format!("{text:?} is not the name of an image"))
    }
}

impl From<PulledName> for String {
    fn from(name: PulledName) -> Self {
        name.0.as_ref().to_owned()
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

/// BLAKE3 hash; 64 lower-case hex digits in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentHash(blake3::Hash);

impl ContentHash {
    /// Hash of bytes in memory.
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes))
    }

    /// Hash of a file's content, holes read as zeros. Blocks.
    pub(super) fn of_file(path: &Path) -> Result<Self, Error> {
        let mut file = File::open(path).map_err(Error::io("open", path))?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            let got = file.read(&mut buffer).map_err(Error::io("read", path))?;
            if got == 0 {
                return Ok(Self(hasher.finalize()));
            }
            hasher.update(&buffer[..got]);
        }
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

impl From<ContentHash> for String {
    fn from(hash: ContentHash) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for ContentHash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        blake3::Hash::from_hex(&text)
            .map(Self)
            .map_err(|error| format!("`{text}` is not a BLAKE3 hash: {error}"))
    }
}
