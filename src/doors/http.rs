//! Parts that the doors over HTTP share: who is let in, what a request may weigh, how a connection is
//! kept within bounds.

pub(super) mod bearer;
pub(super) mod body;
pub(super) mod caller;
pub(crate) mod door;
pub(super) mod hosts;
pub(super) mod idle;
pub(super) mod lasting;
pub(super) mod place;
pub(super) mod server;
pub(super) mod tls;
pub(super) mod token;
mod unread;
