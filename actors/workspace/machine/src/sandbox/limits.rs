//! Resource limits of what runs in a sandbox.

use rustix::process::{Resource, getrlimit};

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

/// Limits that a user namespace has as a whole, by their numbers; where the daemon has less, the limit stays
/// at that.
pub(super) fn counted_limits(max_processes: u32) -> [(libc::c_uint, u64); 4] {
    let [_, _, (_, memlock), (_, msgqueue), (_, sigpending)] = RLIMITS;
    [
        (libc::RLIMIT_MEMLOCK, Resource::Memlock, memlock),
        (libc::RLIMIT_MSGQUEUE, Resource::Msgqueue, msgqueue),
        (libc::RLIMIT_SIGPENDING, Resource::Sigpending, sigpending),
        (libc::RLIMIT_NPROC, Resource::Nproc, max_processes.into()),
    ]
    .map(|(number, resource, most)| {
        (number, getrlimit(resource).maximum.unwrap_or(u64::MAX).min(most))
    })
}
