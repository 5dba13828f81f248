//! The tools of this crate.

mod swarm;

pub(crate) use swarm::*;
