//! Error codes of container images.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// The reference to a container image is malformed.
    IMAGE_REFERENCE = "image_reference" {
        cause: "It does not name its registry, or has characters that references cannot have.",
        next: "Write it in full: `docker.io/library/python:3.12`, `oci:PATH:TAG` or `docker-archive:PATH`.",
    }
    /// The configuration does not allow this image to be pulled.
    IMAGE_NOT_ALLOWED = "image_not_allowed" {
        cause: "Its registry is not listed, it is not pinned by digest, or it has to be signed and no rule says by which keys.",
        next: "`details.key` names the key of the configuration; an operator can pull it with `hivekeep image pull REF`.",
    }
    /// The image is not signed as the configuration asks.
    IMAGE_UNSIGNED = "image_unsigned" {
        cause: "Its repository has no signature of it by a key of `workspace.images.signatures`, or a key cannot be read.",
        next: "Sign it with `cosign sign --key`, pull another, or have the operator add the key. The message says what is missing.",
    }
    /// The registry did not answer as registries do.
    REGISTRY_FAILED = "registry_failed" {
        cause: "It is not reachable, or answered with an error.",
        next: "Try again; the message has the status that it answered.",
    }
    /// The registry refused access.
    REGISTRY_DENIED = "registry_denied" {
        cause: "The image is private or does not exist, or the credentials are wrong.",
        next: "Put credentials for the registry into the file that `workspace.images.auth_file` names.",
    }
    /// The registry, the layout or the archive does not have the image.
    IMAGE_NOT_FOUND = "image_not_found" {
        cause: "The repository, tag or digest is wrong.",
        next: "Look up its tags and write the reference again.",
    }
    /// Fetched content does not have the expected digest.
    DIGEST_MISMATCH = "digest_mismatch" {
        cause: "It was changed on the way, or the source is damaged.",
        next: "Try again; if it stays so, do not trust the source.",
    }
    /// The image is not one that can run here.
    IMAGE_UNSUPPORTED = "image_unsupported" {
        cause: "It is for another platform, or its manifest or layers have a form that is not known.",
        next: "The message says what; use an image for linux/amd64.",
    }
    /// A layer of the image was refused, and nothing of the image is kept.
    LAYER_REFUSED = "layer_refused" {
        cause: "An entry leads out of its tree, is a device, or is not well formed.",
        next: "The message names the entry. Such a layer is broken or hostile.",
    }
    /// The image is larger than what is allowed.
    IMAGE_TOO_LARGE = "image_too_large" {
        cause: "It exceeds a limit of bytes, layers, files or depth.",
        next: "`details.limit` names the limit; those of `workspace.images` can be raised in the configuration.",
    }
    /// The source sent nothing for too long.
    PULL_STALLED = "pull_stalled" {
        cause: "The registry or the network hangs.",
        next: "Try again; `workspace.images.stall_secs` is the limit.",
    }
}
