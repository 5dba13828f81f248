//! Resource limits of what runs in a sandbox.

/// Limits of setrlimit(2) besides that of processes. From Linux 5.14 on, the last three and the
/// limit of processes are counted per user namespace, and so do not reduce those of other processes
/// of the same user.
pub(super) const RLIMITS: [(&str, u64); 5] = [
    // The value that commands have in a VM.
    ("nofile", 65_536),
    // No core files; and not 0, for which the kernel still runs the host's core handler.
    ("core", 1),
    // The kernel's own defaults.
    ("memlock", 8 << 20),
    ("msgqueue", 819_200),
    // A small part of what the kernel gives a user of the host.
    ("sigpending", 4096),
];

/// Those that a user namespace has as a whole, by their numbers.
pub(super) fn counted_limits(max_processes: u32) -> [(libc::c_uint, u64); 4] {
    let [_, _, (_, memlock), (_, msgqueue), (_, sigpending)] = RLIMITS;
    [
        (libc::RLIMIT_MEMLOCK, memlock),
        (libc::RLIMIT_MSGQUEUE, msgqueue),
        (libc::RLIMIT_SIGPENDING, sigpending),
        (libc::RLIMIT_NPROC, max_processes.into()),
    ]
}
