//! Swarms against workspaces and guests that are only told of.

pub(crate) mod fake;
mod life;
mod manager;
mod merge;
mod refusals;
mod stage;
mod survive;
