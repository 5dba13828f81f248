//! The file tools over folders of the host.

mod changes;
mod differential;
mod escapes;
mod stage;
mod swaps;
