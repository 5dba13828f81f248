//! Error type of container images, in terms a caller can act on. No text in it is a credential or
//! a URL with one.

use hivekeep_kernel::{Layer, ToolError};

use crate::codes;

/// Failure to fetch or unpack an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a reference.
    #[error("`{text}` is not a valid image reference: {reason}")]
    Reference {
        /// Text given.
        text: String,
        /// Reason, as a clause whose subject is the text.
        reason: String,
    },
    /// The configuration does not allow the pull.
    #[error("{message}")]
    NotAllowed {
        /// Message: what is not allowed, and what would allow it.
        message: String,
        /// Key of the configuration that decides.
        key: &'static str,
    },
    /// The image is not signed as the configuration asks.
    #[error("{reference} is not signed as workspace.images.signatures asks: {reason}")]
    Unsigned {
        /// Reference asked for.
        reference: String,
        /// Reason: signatures that are missing, unreadable or by other keys.
        reason: String,
    },
    /// A public key cannot be used.
    #[error("a key of workspace.images.signatures cannot be used: {0}")]
    SigningKey(String),
    /// The registry cannot be reached or answered with an error.
    #[error("registry {registry}: {reason}")]
    Registry {
        /// Host and port.
        registry: String,
        /// Reason, without URLs.
        reason: String,
    },
    /// The registry refused access.
    #[error("registry {registry} refused access to {repository}")]
    Denied {
        /// Host and port.
        registry: String,
        /// Repository asked for.
        repository: String,
    },
    /// The source does not have the image, or a part of it.
    #[error("{what} is not in {place}")]
    NotFound {
        /// Tag, digest or file.
        what: String,
        /// Registry, folder or archive.
        place: String,
    },
    /// The content differs from its digest.
    #[error("{what} has the digest {found}, not {expected}")]
    Digest {
        /// Manifest, configuration or layer.
        what: String,
        /// Digest of the content.
        found: String,
        /// Digest it should have.
        expected: String,
    },
    /// The form of the image is not known, or it is for another platform.
    #[error("the image cannot be used: {0}")]
    Unsupported(String),
    /// An entry of a layer is refused.
    #[error("layer {layer}, entry {entry:?}: {reason}")]
    Entry {
        /// Number of the layer, from 1.
        layer: usize,
        /// Path in the layer, as it stands there.
        entry: String,
        /// Reason, as a clause whose subject is the entry.
        reason: String,
    },
    /// The layer as a whole cannot be read.
    #[error("layer {layer}: {reason}")]
    BadLayer {
        /// Number of the layer, from 1.
        layer: usize,
        /// Reason: an archive that ends early, or cannot be decompressed or read.
        reason: String,
    },
    /// A limit is exceeded.
    #[error("the image exceeds a limit: {what}, at most {limit}")]
    TooLarge {
        /// Name of the quantity that is too large.
        what: &'static str,
        /// Key of the configuration, or the name of a fixed limit.
        key: &'static str,
        /// Maximum of the quantity, in its unit.
        limit: u64,
    },
    /// Nothing came for too long.
    #[error("{place} sent nothing for {secs} s")]
    Stalled {
        /// Registry that was waited for: `registry HOST[:PORT]`.
        place: String,
        /// Limit in seconds.
        secs: u64,
    },
    /// The caller cancelled the pull, or its deadline passed; nothing of it is left.
    #[error("the pull was cancelled")]
    Cancelled,
    /// The credentials' file cannot be used.
    #[error("the file of credentials cannot be used: {0}")]
    Credentials(String),
    /// The file of certificates cannot be used.
    #[error("the file of certificates cannot be used: {0}")]
    Authority(String),
    /// The operating system refused an operation.
    #[error("{doing}: {source}")]
    Io {
        /// Operation and its object.
        doing: String,
        /// System error.
        source: std::io::Error,
    },
    /// The image store refused.
    #[error(transparent)]
    Store(#[from] hivekeep_image::Error),
}

impl Error {
    /// Wraps an I/O error with what was being done, for `map_err`.
    pub(crate) fn io<E: Into<std::io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source: source.into() }
    }

    pub(crate) fn unsupported(why: impl Into<String>) -> Self {
        Self::Unsupported(why.into())
    }
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let code = match &error {
            Error::Reference { .. } => codes::IMAGE_REFERENCE,
            Error::NotAllowed { .. } => codes::IMAGE_NOT_ALLOWED,
            Error::Unsigned { .. } | Error::SigningKey(_) => codes::IMAGE_UNSIGNED,
            Error::Authority(_) | Error::Registry { .. } => codes::REGISTRY_FAILED,
            Error::Denied { .. } | Error::Credentials(_) => codes::REGISTRY_DENIED,
            Error::NotFound { .. } => codes::IMAGE_NOT_FOUND,
            Error::Digest { .. } => codes::DIGEST_MISMATCH,
            Error::Unsupported(_) => codes::IMAGE_UNSUPPORTED,
            Error::Entry { .. } | Error::BadLayer { .. } => codes::LAYER_REFUSED,
            Error::TooLarge { .. } => codes::IMAGE_TOO_LARGE,
            Error::Stalled { .. } => codes::PULL_STALLED,
            Error::Cancelled => codes::CANCELLED,
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                codes::HOST_DISK_FULL
            }
            Error::Io { .. } => hivekeep_image::codes::IMAGE_FAILED,
            Error::Store(_) => match error {
                Error::Store(store) => return store.into(),
                _ => unreachable!("it was matched"),
            },
        };
        let known = Self::new(Layer::Machine, code, text).next(code.next_step);
        match error {
            Error::NotAllowed { key, .. } => known.detail("key", key),
            Error::TooLarge { key, limit, .. } => known.detail("limit", key).detail("max", limit),
            _ => known,
        }
    }
}
