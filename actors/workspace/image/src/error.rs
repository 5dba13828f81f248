//! Error type of images, in terms a caller can act on, and its conversion to [`ToolError`].

use std::path::{Path, PathBuf};

use hivekeep_kernel::{Layer, ToolError};

use crate::codes;
use crate::{ContentHash, ImageName};

/// Failure of the image store or of a build.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The image was never built, or an object of it is gone.
    #[error("image `{image}` is missing ({what}); {remedy}")]
    Missing {
        /// Image asked for.
        image: ImageName,
        /// Missing part: the manifest or one object.
        what: String,
        /// Command that brings it back.
        remedy: String,
    },
    /// A file's content does not match its name.
    #[error("{} is corrupt: its content hashes to {found}, not {expected}; {remedy}", path.display())]
    Corrupt {
        /// Damaged file.
        path: PathBuf,
        /// Hash in the manifest.
        expected: ContentHash,
        /// Hash of the content on disk.
        found: ContentHash,
        /// Command that repairs it.
        remedy: String,
    },
    /// A name is outside of a closed set.
    #[error("there is no {what} named `{asked}`; known: {known}")]
    Unknown {
        /// Kind of name: "image", "suite", "kernel".
        what: &'static str,
        /// Name asked for.
        asked: String,
        /// All valid names, comma separated.
        known: String,
    },
    /// The disk asked for cannot hold the image, or exceeds what the filesystem can grow to.
    #[error(
        "a disk of {asked_gb} GiB is not possible for image `{image}`: it must have {min_gb} to {max_gb} GiB"
    )]
    DiskSize {
        /// Image of the disk.
        image: ImageName,
        /// Size asked for in GiB.
        asked_gb: u64,
        /// Minimum size that holds the image.
        min_gb: u64,
        /// Maximum size that the filesystem can grow to.
        max_gb: u64,
    },
    /// The path of a new overlay is taken; it is never overwritten.
    #[error("{} exists already", path.display())]
    OverlayExists {
        /// Path asked for.
        path: PathBuf,
    },
    /// Another process builds into the same store.
    #[error("another image build is running in {}; wait for it to end", root.display())]
    Busy {
        /// Root folder of the store.
        root: PathBuf,
    },
    /// A program or file that a build needs is absent.
    #[error("{what} is missing; {remedy}")]
    Requirement {
        /// Missing program or file.
        what: String,
        /// Way to get it.
        remedy: String,
    },
    /// A program ran and failed.
    #[error("{tool} failed ({status}): {stderr}")]
    ToolFailed {
        /// Name of the program.
        tool: String,
        /// Exit status in words.
        status: String,
        /// End of its standard error.
        stderr: String,
    },
    /// A program did not end in time and was killed.
    #[error("{tool} did not end within {after_secs} s and was killed")]
    ToolTimeout {
        /// Name of the program.
        tool: String,
        /// Time limit.
        after_secs: u64,
    },
    /// The caller cancelled the build; no image changed and no process of it is left.
    #[error("the image build was cancelled")]
    Cancelled,
    /// The guest binary cannot be the first process of a VM.
    #[error("{} cannot be the guest daemon: {reason}", path.display())]
    GuestBinary {
        /// Path given.
        path: PathBuf,
        /// Reason, as a clause whose subject is the file.
        reason: String,
    },
    /// The kernel or a module cannot be booted the way workspaces boot.
    #[error("the kernel cannot be used: {reason}")]
    Kernel {
        /// Reason, as a clause about a package, a module or its configuration.
        reason: String,
    },
    /// Packages did not contain what the root filesystem needs.
    #[error("the root filesystem is incomplete: {reason}")]
    Rootfs {
        /// Reason, with the path or the command that is missing.
        reason: String,
    },
    /// Workspaces have their disks over the image.
    #[error("image `{image}` is used by {}", users.join(", "))]
    InUse {
        /// Name of the image that was to be removed.
        image: ImageName,
        /// Ids of workspaces.
        users: Vec<String>,
    },
    /// The uses of images are not known.
    #[error(
        "it is not known which images are in use; start the daemon once, and build or pull what is \
         unreadable in `hivekeep image list`"
    )]
    UsesUnknown,
    /// The manifest cannot be read. It is left unchanged.
    #[error("{} is not a readable manifest: {reason}", path.display())]
    Manifest {
        /// Path of the manifest.
        path: PathBuf,
        /// Reason: its JSON, or the version of its format.
        reason: String,
    },
    /// The operating system refused an operation.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// Operation, as a verb: "read", "rename".
        doing: &'static str,
        /// File of the operation.
        path: PathBuf,
        /// System error.
        source: std::io::Error,
    },
}

impl Error {
    /// Wraps an I/O error with the operation and the file, for `map_err`.
    pub(super) fn io<E: Into<std::io::Error>>(
        doing: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io { doing, path, source: source.into() }
    }

    pub(super) fn missing(image: &ImageName, what: impl Into<String>) -> Self {
        Self::Missing { image: image.clone(), what: what.into(), remedy: remedy(image) }
    }
}

/// Command that repairs an image.
pub(super) fn remedy(image: &ImageName) -> String {
    match image {
        ImageName::Pulled(name) if name.is_given() => {
            format!("run: hivekeep image pull REF --name {image}")
        }
        ImageName::Pulled(_) => format!("run: hivekeep image pull {image}"),
        ImageName::Base | ImageName::Debian | ImageName::CodeInterpreter => {
            format!("run: hivekeep image build {image}")
        }
    }
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let code = match &error {
            Error::Missing { .. } => codes::IMAGE_MISSING,
            Error::Corrupt { .. } => codes::IMAGE_CORRUPT,
            Error::Unknown { .. } => codes::IMAGE_UNKNOWN,
            Error::DiskSize { .. } => codes::DISK_SIZE,
            Error::OverlayExists { .. } => codes::DISK_EXISTS,
            Error::InUse { .. } => codes::IMAGE_IN_USE,
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                codes::HOST_DISK_FULL
            }
            _ => codes::IMAGE_FAILED,
        };
        let known = Self::new(Layer::Machine, code, text);
        match &error {
            Error::Missing { remedy, .. } | Error::Corrupt { remedy, .. } => {
                known.next(remedy.clone())
            }
            Error::DiskSize { min_gb, max_gb, .. } => {
                known.detail("min_gb", *min_gb).detail("max_gb", *max_gb)
            }
            _ => known.next("`hivekeep image list` shows the images"),
        }
    }
}
