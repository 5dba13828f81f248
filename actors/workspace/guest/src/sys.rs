//! The few system calls that no safe crate offers. All unsafe code of the guest
//! is in this folder.

pub mod descriptors;
pub mod fs_ids;
pub mod ioctl;
pub mod memory;
pub mod signals;
pub mod spawn;
