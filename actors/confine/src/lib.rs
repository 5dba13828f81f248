//! Confinement of a process by the kernel: id maps, mounts, and filters of system calls.
//!
//! Used for what is started on the host: sandboxes and servers of volumes, programs of the operator's,
//! and, within a sandbox, what the guest daemon starts.

pub mod idmap;
pub mod mounts;
pub mod syscalls;
