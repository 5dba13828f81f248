//! The few system calls that no safe crate offers. All unsafe code of the guest
//! is in this folder.

pub mod cached;
pub mod fork;
pub mod fs_ids;
pub mod heap;
pub mod ioctl;
pub mod kill;
pub mod peer;
pub mod read;
pub mod signals;
pub mod spawn;
pub mod stdio;
pub mod watched;
