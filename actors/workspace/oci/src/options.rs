//! Options of container images.

use std::{path::PathBuf, time::Duration};

use hivekeep_image::PruneTerms;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{PullLimits, SignatureRule};

/// Container images: where they come from, and their limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImageOptions {
    /// Registries, `HOST` or `HOST:PORT`, from which tools pull an image that is not here; `*` is each. Empty: tools pull nothing, `hivekeep image pull` does.
    pub registries: Vec<String>,
    /// Registries that are asked over HTTP without TLS, `HOST:PORT`.
    pub plain_http: Vec<String>,
    /// Pull only what is named by digest, `NAME@sha256:...`.
    pub require_digest: bool,
    /// Pull only images that a rule of `signatures` is about.
    pub require_signature: bool,
    /// Which images have to be signed, and by whom, none by default. Each is a table: `[[workspace.images.signatures]]` with `images`, `HOST/REPOSITORY` or the beginning of that and `*`, and `keys`, files with public keys of cosign, of which one has to have signed. The first that is about an image decides.
    pub signatures: Vec<SignatureRule>,
    /// Credentials, in the format of Docker's `config.json`; empty: none.
    pub auth_file: PathBuf,
    /// Certificates in PEM of authorities by which registries are trusted besides those of the system; empty: none.
    pub ca_file: PathBuf,
    /// Most layers of an image.
    pub max_layers: usize,
    /// Most MiB of an image's layers as a registry stores them.
    pub max_compressed_mb: u64,
    /// Most MiB of an image's layers unpacked.
    pub max_unpacked_mb: u64,
    /// Most files, folders and links of an image's layers.
    pub max_entries: u64,
    /// A pull that gets nothing for this long is given up.
    pub stall_secs: u64,
    /// Hours since the last use after which an image that nothing uses is removed, by the daemon and by `hivekeep image prune`.
    pub prune_after_hours: u64,
    /// Free MiB of the image directory's file system below which images that nothing uses are removed, the longest unused first, and below which no pull begins.
    pub min_free_mb: u64,
    /// Seconds between two looks of the daemon for images to remove; 0: it removes none.
    pub prune_every_secs: u64,
}

impl Default for ImageOptions {
    fn default() -> Self {
        Self {
            registries: Vec::new(),
            plain_http: Vec::new(),
            require_digest: false,
            require_signature: false,
            signatures: Vec::new(),
            ca_file: PathBuf::new(),
            auth_file: PathBuf::new(),
            max_layers: 128,
            max_compressed_mb: 8 * 1024,
            max_unpacked_mb: 16 * 1024,
            max_entries: 500_000,
            stall_secs: 30,
            prune_after_hours: 7 * 24,
            min_free_mb: 1024,
            prune_every_secs: 1800,
        }
    }
}

impl ImageOptions {
    /// Which images are removed that nothing uses.
    pub fn prune_terms(&self) -> PruneTerms {
        PruneTerms {
            age: Duration::from_secs(self.prune_after_hours.saturating_mul(3600)),
            min_free_bytes: self.min_free_mb.saturating_mul(1 << 20),
        }
    }

    /// Bounds of one image.
    pub fn limits(&self) -> PullLimits {
        PullLimits {
            layers: self.max_layers,
            compressed_bytes: self.max_compressed_mb.saturating_mul(1 << 20),
            unpacked_bytes: self.max_unpacked_mb.saturating_mul(1 << 20),
            entries: self.max_entries,
            stall: Duration::from_secs(self.stall_secs.max(1)),
        }
    }
}
