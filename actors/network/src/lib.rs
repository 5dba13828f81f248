//! The network of the workspaces.

mod apply;
pub mod capability;
mod error;
mod netns;
pub mod plan;
pub mod ports;
pub mod resolver;
pub mod rules;
pub mod selftest;

pub use apply::{Applied, Enforcer, Obstacle, Opening, Options, Owner, Uplinks};
pub use error::Error;
pub use netns::Namespace;
