//! Error codes of volumes.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// The volume is mounted into workspaces.
    VOLUME_IN_USE = "volume_in_use" {
        cause: "Workspaces have it in their `volumes`, whether they run or not.",
        next: "Destroy the workspaces that the message names, or start them with other `volumes`.",
    }
    /// The volume has no room for what is written.
    VOLUME_FULL = "volume_full" {
        cause: "Its size is enforced on every byte, from inside of workspaces too.",
        next: "Delete files in it, or copy them to a larger volume.",
    }
    /// The user's volumes would be more, or larger, than is allowed.
    VOLUME_QUOTA_EXCEEDED = "volume_quota_exceeded" {
        cause: "`volume.max_volumes`, `volume.max_total_mb` or the user's tier is reached; sizes count as they were asked for.",
        next: "Delete a volume with `aegis.volume.delete`, ask for a smaller one, or raise the limit.",
    }
    /// The volume could not be made, mounted or removed on the host.
    VOLUME_FAILED = "volume_failed" {
        cause: "A system call or a program (`mkfs.ext4`, `mount`) failed on the host, as the message says.",
        next: "Run `hivekeep check` on the host and look at `hivekeep logs`.",
    }
    /// The path is a device, a pipe or a socket.
    VOLUME_NOT_A_FILE = "volume_not_a_file" {
        cause: "A workspace made a special file in the volume.",
        next: "Name a regular file.",
    }
}
