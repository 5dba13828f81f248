//! What can go wrong with images, in terms a caller can act on.

use std::path::{Path, PathBuf};

use super::{Hash, ImageName};

/// A failure of the image store or of a build.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The image was never built, or an object of it is gone.
    #[error("image `{image}` is not there ({what}); {remedy}")]
    Missing {
        /// The image asked for.
        image: ImageName,
        /// What is absent: the manifest or one object.
        what: String,
        /// The command that brings it back.
        remedy: String,
    },
    /// A file's content is not what its name promises.
    #[error("{} is corrupt: its content hashes to {found}, not {expected}; {remedy}", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// The hash the manifest names.
        expected: Hash,
        /// The hash of what is on disk.
        found: Hash,
        /// The command that repairs it.
        remedy: String,
    },
    /// A name outside of a closed set.
    #[error("there is no {what} named `{asked}`; known: {known}")]
    Unknown {
        /// What was to be named: "image", "suite", "kernel".
        what: &'static str,
        /// The name asked for.
        asked: String,
        /// Every name there is, comma separated.
        known: String,
    },
    /// The disk asked for cannot hold the image, or is beyond what the filesystem can grow to.
    #[error(
        "a disk of {asked_gb} GiB is not possible for image `{image}`: {min_gb} to {max_gb} GiB are"
    )]
    DiskSize {
        /// The image the disk is for.
        image: ImageName,
        /// GiB asked for.
        asked_gb: u64,
        /// The least that holds the image.
        min_gb: u64,
        /// The most the filesystem was prepared to grow to.
        max_gb: u64,
    },
    /// The place for a new overlay is taken; it is never overwritten.
    #[error("{} exists already", path.display())]
    OverlayExists {
        /// The path asked for.
        path: PathBuf,
    },
    /// Another process builds into the same store.
    #[error("another image build is running in {}; wait for it to end", root.display())]
    Busy {
        /// The store's root.
        root: PathBuf,
    },
    /// A program or file that a build needs is absent.
    #[error("{what} is missing; {remedy}")]
    Requirement {
        /// What is absent.
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// A program ran and failed.
    #[error("{tool} failed ({status}): {stderr}")]
    ToolFailed {
        /// The program.
        tool: String,
        /// Its exit status in words.
        status: String,
        /// The end of what it wrote to standard error.
        stderr: String,
    },
    /// A program did not end in time and was killed.
    #[error("{tool} did not end within {after_secs} s and was killed")]
    ToolTimeout {
        /// The program.
        tool: String,
        /// The limit it broke.
        after_secs: u64,
    },
    /// The caller cancelled the build; no image changed and no process of it is left.
    #[error("the image build was cancelled")]
    Cancelled,
    /// The guest binary cannot be the first process of a VM.
    #[error("{} cannot be the guest daemon: {reason}", path.display())]
    GuestBinary {
        /// The file given.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A kernel or module that cannot be booted the way workspaces boot.
    #[error("the kernel cannot be used: {reason}")]
    Kernel {
        /// What is wrong with it.
        reason: String,
    },
    /// Packages did not contain what the root filesystem needs.
    #[error("the root filesystem is incomplete: {reason}")]
    Rootfs {
        /// What is absent or does not fit.
        reason: String,
    },
    /// A manifest that cannot be read. It is left as it is.
    #[error("{} is not a readable manifest: {reason}", path.display())]
    Manifest {
        /// The manifest file.
        path: PathBuf,
        /// Why it was refused.
        reason: String,
    },
    /// The operating system refused.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// The attempt, as a verb: "read", "rename".
        doing: &'static str,
        /// The file it was about.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl Error {
    /// For `map_err`: an I/O error with what was attempted and where.
    pub(super) fn io<E: Into<std::io::Error>>(
        doing: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io { doing, path, source: source.into() }
    }

    pub(super) fn missing(image: ImageName, what: impl Into<String>) -> Self {
        Self::Missing { image, what: what.into(), remedy: remedy(image) }
    }
}

/// The one command that makes an image whole again.
pub(super) fn remedy(image: ImageName) -> String {
    format!("run: hivekeep image build {image}")
}
