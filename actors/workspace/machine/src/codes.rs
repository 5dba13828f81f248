//! Error codes of hypervisors and sandboxes.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// A program that machines need is not installed.
    MACHINE_TOOL_MISSING = "machine_tool_missing" {
        cause: "QEMU, bubblewrap or one of their tools is not on the host.",
        next: "`hivekeep check` names the package.",
    }
    /// KVM cannot be used.
    KVM_UNUSABLE = "kvm_unusable" {
        cause: "`/dev/kvm` is missing, not permitted or too slow, and the configuration requires it.",
        next: "Set `workspace.driver.accelerator` to \"auto\" or \"tcg\".",
    }
    /// Machines cannot be limited by cgroups.
    LIMITS_UNAVAILABLE = "limits_unavailable" {
        cause: "The host delegates no cgroup to the daemon, and the configuration requires one.",
        next: "Fix the host's cgroups, or set `workspace.driver.cgroup_required` to false.",
    }
    /// The kernel's Landlock lacks what the configuration requires.
    LANDLOCK_INCOMPLETE = "landlock_incomplete" {
        cause: "The kernel is older than 6.12, or booted without Landlock.",
        next: "Boot a newer kernel with `lsm=landlock,...`, or set `workspace.sandbox.landlock_required` to false.",
    }
    /// A machine cannot be made as it is described.
    MACHINE_PLAN_INVALID = "machine_plan_invalid" {
        cause: "The image or the configuration asks for something that the driver does not know.",
        next: "`hivekeep check` looks at the images.",
    }
    /// There is no user of its own for a sandbox.
    SANDBOX_USER_MISSING = "sandbox_user_missing" {
        cause: "All subordinate users of the daemon's user are in use, or the ids of a sandbox's users are somebody else's.",
        next: "Give the daemon's user a larger range in `/etc/subuid`; for a daemon of root look at `workspace.driver.sandbox_first_id`.",
    }
    /// A machine's user cannot reach a folder that it needs.
    MACHINE_PATH_UNREACHABLE = "machine_path_unreachable" {
        cause: "The mode of the folder, or of one above it, keeps other users out.",
        next: "Change the mode as the message says.",
    }
    /// The machine ended while it was starting.
    MACHINE_DIED_AT_START = "machine_died_at_start" {
        cause: "The hypervisor or sandbox refused its arguments, or ran out of memory.",
        next: "`workspace_logs` shows what it printed.",
    }
    /// The machine did not start in time.
    MACHINE_START_TIMEOUT = "machine_start_timeout" {
        cause: "The host is overloaded, or the hypervisor hangs.",
        next: "`workspace_logs` shows what it printed.",
    }
    /// The machine does not run any more.
    MACHINE_GONE = "machine_gone" {
        cause: "It ended, crashed or was killed during the call.",
        next: "`workspace_info` shows the state; `workspace_start` starts it again.",
    }
    /// The machine's process cannot be ended.
    MACHINE_UNKILLABLE = "machine_unkillable" {
        cause: "The host's kernel holds it, usually in a read or write of a failing disk.",
        next: "Look at the host.",
    }
    /// The machine has no network interface.
    NO_NETWORK_INTERFACE = "no_network_interface" {
        cause: "It was started while the network was unavailable.",
        next: "Stop the workspace and start it again.",
    }
    /// The machine could not be controlled.
    MACHINE_CONTROL_FAILED = "machine_control_failed" {
        cause: "The hypervisor refused a command, or its control socket broke.",
        next: "`workspace_logs` shows what it printed.",
    }
    /// A file or folder of the host could not be used for a machine.
    MACHINE_HOST_IO = "machine_host_io" {
        cause: "Missing permissions or a failing disk.",
        next: "`hivekeep check` looks at the folders.",
    }
    /// A snapshot's memory does not fit the machine.
    SNAPSHOT_DOES_NOT_FIT = "snapshot_does_not_fit" {
        cause: "It was saved with another size of machine or another version of QEMU.",
        next: "Start it as it was saved, or restore it without its memory.",
    }
    /// A snapshot's memory cannot be read.
    SNAPSHOT_DAMAGED = "snapshot_damaged" {
        cause: "Its file is cut short or was changed.",
        next: "Restore it without its memory, or delete it.",
    }
    /// The machine could not be saved.
    SNAPSHOT_FAILED = "snapshot_failed" {
        cause: "The hypervisor failed while it wrote disk or memory.",
        next: "Repeat the call; `workspace_info` shows the state.",
    }
}
