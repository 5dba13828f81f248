//! Error codes of workspaces, their snapshots, files and backups.

pub(crate) use hivekeep_image::codes::*;
pub(crate) use hivekeep_kernel::codes::*;
pub(crate) use hivekeep_link::codes::*;
pub(crate) use hivekeep_machine::codes::*;

hivekeep_kernel::codes! {
    /// The daemon has as many workspaces as it may.
    TOO_MANY_WORKSPACES = "too_many_workspaces" {
        cause: "`workspace.max_workspaces` is reached.",
        next: "Destroy workspaces that are not needed, or raise `workspace.max_workspaces`.",
    }
    /// The workspace cannot be parked.
    PARK_UNSUPPORTED = "park_unsupported" {
        cause: "A sandbox shares the host's kernel: it has no memory that could be saved.",
        next: "Call `workspace_stop`, or make the workspace with isolation `vm`.",
    }
    /// A parked workspace could not be woken.
    NOT_WOKEN = "not_woken" {
        cause: "The hypervisor was upgraded or configured otherwise, or files of its memory are missing or damaged.",
        next: "Bring the host back to what it was, or call `workspace_start` with `from_disk`, which gives its memory up.",
    }
    /// This host does not offer the isolation.
    ISOLATION_UNAVAILABLE = "isolation_unavailable" {
        cause: "QEMU or bubblewrap is missing or unusable.",
        next: "Run `hivekeep check` on the host to see what is missing.",
    }
    /// The guest daemon's program is missing on the host.
    GUEST_BINARY_MISSING = "guest_binary_missing" {
        cause: "It was not installed, or `workspace.guest_binary` is wrong.",
        next: "Build it with `cargo xtask guest`, or set `workspace.guest_binary`.",
    }
    /// A folder of the daemon cannot be used.
    FOLDER_UNUSABLE = "folder_unusable" {
        cause: "It is missing, or its mode or owner keeps the daemon out.",
        next: "`hivekeep check` looks at the folders.",
    }
    /// The guest did not come up.
    BOOT_FAILED = "boot_failed" {
        cause: "The machine ended during the boot, or its guest was refused.",
        next: "`workspace_logs` shows the console and the hypervisor's messages.",
    }
    /// The guest did not answer in time after the machine started.
    BOOT_TIMEOUT = "boot_timeout" {
        cause: "The host is slow or overloaded, or the guest hangs.",
        next: "`workspace_logs` shows the console; `workspace.boot_timeout_secs` sets the limit.",
    }
    /// A copied machine kept something of the one it was copied from.
    GUEST_NOT_ITSELF = "guest_not_itself" {
        cause: "The guest could not change its machine id, random seed, name or clock.",
        next: "`workspace_logs` shows the guest's console.",
    }
    /// The guest did not take its configuration.
    GUEST_NOT_CONFIGURED = "guest_not_configured" {
        cause: "The guest kept another host name than the workspace's.",
        next: "`workspace_logs` shows the guest's console.",
    }
    /// The guest's file system could not be grown to the size of its disk.
    DISK_NOT_GROWN = "disk_not_grown" {
        cause: "The image's file system cannot grow, or is damaged.",
        next: "`workspace_logs` shows the guest's console.",
    }
    /// The guest's network could not be set up.
    GUEST_NETWORK_FAILED = "guest_network_failed" {
        cause: "The guest did not take its address, route or name servers.",
        next: "`workspace_logs` shows the guest's console.",
    }
    /// Files of the workspace's disk are missing on the host.
    DISK_MISSING = "disk_missing" {
        cause: "They were removed, or were not part of a restored backup.",
        next: "Put them back, or call `workspace_destroy`.",
    }
    /// The workspace's logs cannot be read.
    LOGS_UNREADABLE = "logs_unreadable" {
        cause: "Their files are missing or not permitted.",
        next: "Look at the workspace's folder on the host.",
    }
    /// The owner's session is in use, so the workspace cannot be taken over.
    OWNER_ACTIVE = "owner_active" {
        cause: "A client is attached to that session, or it was used less than a minute ago.",
        next: "Try again when that session is idle; `force` takes from one that is attached and idle.",
    }
    /// The machine of the pool cannot be given away.
    NOT_CLAIMABLE = "not_claimable" {
        cause: "It was given away already, or does not run.",
        next: "Nothing: the daemon takes another one.",
    }
    /// The host's side of a transfer is outside of the transfer directory.
    OUTSIDE_TRANSFER_DIR = "outside_transfer_dir" {
        cause: "`host_path` is absolute, contains `..` or leads through a link.",
        next: "Use a path relative to the transfer directory.",
    }
    /// The file to be uploaded does not exist on the host.
    HOST_FILE_MISSING = "host_file_missing" {
        cause: "`host_path` is wrong, or the file was not put into the transfer directory.",
        next: "Put the file into the transfer directory.",
    }
    /// The transfer directory holds as much as it may.
    TRANSFER_DIR_FULL = "transfer_dir_full" {
        cause: "`workspace.transfer_max_total_mb` is reached.",
        next: "Remove files from it, or raise `workspace.transfer_max_total_mb`.",
    }
    /// Other snapshots or forks need the snapshot.
    SNAPSHOT_HAS_DEPENDENTS = "snapshot_has_dependents" {
        cause: "Snapshots were made after it, or forks from it.",
        next: "Delete the snapshots and destroy the forks in `details.dependents` first.",
    }
    /// The workspace's disk has as many layers as it may.
    TOO_MANY_LAYERS = "too_many_layers" {
        cause: "Many snapshots were made; layers that deleted ones leave are merged at a stop only.",
        next: "Call `workspace_stop`, after deleting snapshots that are not needed.",
    }
    /// An earlier snapshot or restore was cut short.
    SNAPSHOT_UNFINISHED = "snapshot_unfinished" {
        cause: "The daemon or the machine ended in the middle of it.",
        next: "Call `workspace_start`, after `workspace_stop` if the workspace runs: that concludes it.",
    }
    /// The snapshot has no memory any more.
    SNAPSHOT_MEMORY_MISSING = "snapshot_memory_missing" {
        cause: "Backups hold disks and no memory.",
        next: "Restore or fork it with `with_memory` false.",
    }
    /// The guest's file system could not be frozen.
    GUEST_NOT_FROZEN = "guest_not_frozen" {
        cause: "The guest's file system does not support it, or is busy.",
        next: "Make the snapshot with memory, which needs no freezing.",
    }
    /// The guest's disk was not quiet for as long as saving took.
    SNAPSHOT_TORN = "snapshot_torn" {
        cause: "The host is slow, so that the guest thawed before the disk was saved.",
        next: "Repeat the call when the host is less busy, or use `include_memory`.",
    }
    /// A workspace of this name exists and was not prepared.
    NOT_PREPARED = "not_prepared" {
        cause: "It was made by `workspace_create`, or its snapshot `golden` was deleted.",
        next: "Choose another name, or call `workspace_destroy` first.",
    }
    /// The workspace was prepared by another recipe.
    RECIPE_DIFFERS = "recipe_differs" {
        cause: "The call repeats a name with other fields; `details.fields` names them.",
        next: "Choose another name, or call `workspace_destroy` first.",
    }
    /// Another call prepares a workspace of this name.
    PREPARE_IN_PROGRESS = "prepare_in_progress" {
        cause: "The call was repeated before the first one ended.",
        next: "Repeat it when that one has ended: the same recipe is answered at once.",
    }
    /// A setup command failed.
    SETUP_FAILED = "setup_failed" {
        cause: "It exited with an error or ran into its time limit.",
        next: "Correct it as `details.output` says and repeat; nothing of the workspace is left.",
    }
    /// A network policy is not in force after it was set.
    POLICY_NOT_APPLIED = "policy_not_applied" {
        cause: "Something else changed the policy of the workspace at the same time.",
        next: "Repeat the call.",
    }
    /// Files changed while the backup was made.
    BACKUP_RACED = "backup_raced" {
        cause: "Snapshots were deleted or merged meanwhile.",
        next: "Make the backup again.",
    }
    /// The image of the workspace has no entry point.
    NO_ENTRY_POINT = "no_entry_point" {
        cause: "It is not a container image, names no entry point, or the disk was made by a version that recorded none.",
        next: "Name the program in `command`; `hivekeep image inspect` shows what an image says.",
    }
    /// The workspace is not in the backup.
    MADE_MEANWHILE = "made_meanwhile" {
        cause: "It was made while the backup was.",
        next: "Make the backup again if the workspace is needed in it.",
    }
    /// URLs for ports of workspaces are not served.
    PORT_URLS_OFF = "port_urls_off" {
        cause: "`http.ports.enabled` is false, which is the default.",
        next: "The operator sets `http.ports.enabled = true` and restarts the daemon.",
    }
}
