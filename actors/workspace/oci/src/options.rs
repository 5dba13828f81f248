//! Options of container images: who may pull which, within which bounds.

use std::path::PathBuf;
use std::time::Duration;

use hivekeep_image::PruneTerms;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, ImageSource, OciResult, RegistryRef};

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

/// Rule that images have to be signed by one of some keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignatureRule {
    /// Images that it is about: `HOST/REPOSITORY`, or the beginning of that and `*`.
    pub images: String,
    /// Files with public keys of cosign (ECDSA on P-256, PEM). One of them has to have signed.
    pub keys: Vec<PathBuf>,
}

impl SignatureRule {
    fn is_about(&self, reference: &RegistryRef) -> bool {
        let name = format!("{}/{}", reference.registry(), reference.repository());
        match self.images.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == self.images,
        }
    }
}

/// Requester of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// Operator, at the command line: any source.
    Operator,
    /// Tool, for a session: listed registries only, never a path of the host.
    Session,
}

/// Policy of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct ImagePolicy<'a>(pub &'a ImageOptions);

impl<'a> ImagePolicy<'a> {
    /// Judges a pull.
    ///
    /// # Errors
    /// `NotAllowed` with the key that decides.
    pub fn judge(&self, source: &ImageSource, asker: Asker) -> OciResult<()> {
        let refuse = |message: String, key| Err(Error::NotAllowed { message, key });
        if self.0.require_signature && self.signature_rule(source).is_none() {
            let message = format!(
                "workspace.images.require_signature is set, and no rule of \
                 workspace.images.signatures says who has to sign {source}"
            );
            return refuse(message, "workspace.images.require_signature");
        }
        let reference = match (source, asker) {
            (ImageSource::Registry(reference), _) => reference,
            (_, Asker::Operator) => return Ok(()),
            (_, Asker::Session) => {
                let message = "only images of registries can be named here".to_owned();
                return refuse(message, "workspace.images.registries");
            }
        };
        let listed = self.0.registries.iter().any(|it| it == "*" || it == reference.registry());
        if asker == Asker::Session && !listed {
            let registry = reference.registry();
            let message = format!(
                "image {reference} is not here, and registry {registry} is not in \
                 workspace.images.registries, from which tools pull"
            );
            return refuse(message, "workspace.images.registries");
        }
        if self.0.require_digest && reference.digest().is_none() {
            let message = format!("{reference} is not pinned by digest, as the configuration asks");
            return refuse(message, "workspace.images.require_digest");
        }
        Ok(())
    }

    /// Rule by which an image has to be signed. Only images of registries can be.
    pub(crate) fn signature_rule(&self, source: &ImageSource) -> Option<&'a SignatureRule> {
        let ImageSource::Registry(reference) = source else { return None };
        self.0.signatures.iter().find(|rule| rule.is_about(reference))
    }

    /// True for registries that are asked without TLS.
    pub(crate) fn plain_http(&self, host: &str) -> bool {
        self.0.plain_http.iter().any(|listed| listed == host)
    }
}

/// Maximum size of a manifest, an index, a configuration and an answer with a token, as registries
/// have it.
pub(crate) const DOCUMENT_BYTES: u64 = 4 << 20;
/// Maximum size of the extension records of one entry of a layer.
pub(crate) const EXTENSION_BYTES: u64 = 1 << 20;
/// Maximum length of a path in a layer.
pub(crate) const PATH_BYTES: usize = 4095;
/// Maximum length of a path in the tree, where links of the layers lead deeper than their paths.
pub(crate) const TREE_PATH_BYTES: usize = 2048;
/// Maximum number of folders that an entry is in.
pub(crate) const DEPTH: usize = 128;

/// Configured bounds of one image.
#[derive(Debug, Clone, Copy)]
pub struct PullLimits {
    /// Number of layers.
    pub layers: usize,
    /// Sum of the layers' bytes as they are stored.
    pub compressed_bytes: u64,
    /// Sum of the layers' bytes as archives.
    pub unpacked_bytes: u64,
    /// Number of entries of all layers.
    pub entries: u64,
    /// Time without a byte.
    pub stall: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_pull_from_listed_registries_and_operators_from_anywhere() {
        let tagged = ImageSource::parse("ghcr.io/a/b:1").unwrap();
        let pinned = ImageSource::parse(&format!("ghcr.io/a/b@sha256:{}", "0".repeat(64))).unwrap();
        let folder = ImageSource::parse("oci:/a").unwrap();
        let key = |options: &ImageOptions, source: &ImageSource, asker| match ImagePolicy(options)
            .judge(source, asker)
        {
            Ok(()) => None,
            Err(Error::NotAllowed { key, .. }) => Some(key.rsplit('.').next().unwrap()),
            Err(other) => panic!("{other}"),
        };
        let mut options = ImageOptions::default();
        assert_eq!(key(&options, &tagged, Asker::Operator), None);
        assert_eq!(key(&options, &tagged, Asker::Session), Some("registries"));
        options.registries = vec!["ghcr.io".to_owned()];
        assert_eq!(key(&options, &tagged, Asker::Session), None);
        assert_eq!(key(&options, &folder, Asker::Session), Some("registries"));
        assert_eq!(key(&options, &folder, Asker::Operator), None);
        options.require_digest = true;
        assert_eq!(key(&options, &tagged, Asker::Operator), Some("require_digest"));
        assert_eq!(key(&options, &pinned, Asker::Session), None);
        options.require_signature = true;
        let rule = |images: &str| SignatureRule { images: images.to_owned(), keys: Vec::new() };
        for other in ["ghcr.io/a", "ghcr.io/a/bc", "docker.io/*", "a/b"] {
            options.signatures.push(rule(other));
        }
        assert_eq!(key(&options, &pinned, Asker::Operator), Some("require_signature"));
        for ours in ["ghcr.io/a/b", "ghcr.io/a/*", "*"] {
            options.signatures = vec![rule(ours)];
            assert_eq!(key(&options, &pinned, Asker::Session), None);
            assert_eq!(key(&options, &folder, Asker::Operator), Some("require_signature"));
        }
    }
}
