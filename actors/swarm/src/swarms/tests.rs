//! Swarms against workspaces and guests that are only told of.

pub(crate) mod fake;
mod keeper;
mod life;
mod merge;
mod refusals;
mod stage;
mod survive;
