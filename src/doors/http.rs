//! Parts that the doors over HTTP share: who is let in, what a request may weigh, how a connection is
//! kept within bounds.

pub(super) mod body;
pub(super) mod caller;
pub(crate) mod door;
pub(super) mod hosts;
pub(super) mod server;
