//! Parts that the doors over HTTP share: who is let in, what a request may weigh, how a connection is
//! kept within bounds.

pub mod body;
pub mod caller;
pub mod door;
pub mod guests;
pub mod hosts;
pub mod links;
pub mod server;
