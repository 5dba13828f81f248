//! What the kernel keeps a process to: maps of its ids, its mounts, the system calls it may make.
//!
//! Used for what is started on the host: sandboxes and servers of volumes, programs of the operator's,
//! and, within a sandbox, what the guest daemon starts.

pub mod idmap;
pub mod mounts;
pub mod syscalls;
