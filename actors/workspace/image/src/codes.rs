//! Error codes of images and of disks made from them.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// There is no image of this name.
    IMAGE_UNKNOWN = "image_unknown" {
        cause: "The name is wrong, or is not known on this host.",
        next: "`hivekeep image list` shows the images; `hivekeep image build base` makes one.",
    }
    /// An image, or a file of it, is missing.
    IMAGE_MISSING = "image_missing" {
        cause: "It was never built, or was removed from the image directory.",
        next: "Build it with `hivekeep image build NAME`, or restore the image directory; disks of workspaces are intact.",
    }
    /// An image is damaged.
    IMAGE_CORRUPT = "image_corrupt" {
        cause: "Its files differ from their checksums.",
        next: "Build the image again.",
    }
    /// An image could not be used.
    IMAGE_FAILED = "image_failed" {
        cause: "Its manifest or files cannot be read, or a tool of the host failed on them.",
        next: "`hivekeep image list` shows the images; the message says what failed.",
    }
    /// The disk's size is out of range for the image.
    DISK_SIZE = "disk_size" {
        cause: "`disk_gb` is smaller than the image or larger than the maximum.",
        next: "Choose a size between `details.min_gb` and `details.max_gb`.",
    }
    /// The image is in use.
    IMAGE_IN_USE = "image_in_use" {
        cause: "Workspaces, or snapshots of them, have their disks over it.",
        next: "Destroy the workspaces that the message names, or leave the image.",
    }
    /// A disk exists where a new one should be made.
    DISK_EXISTS = "disk_exists" {
        cause: "An earlier creation left it behind.",
        next: "Look at `hivekeep logs`; the daemon removes leftovers when it starts.",
    }
}
