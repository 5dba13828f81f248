//! Teams against workspaces that are only told of.

mod below;
mod cards;
pub(crate) mod fake;
mod group;
mod guests;
mod life;
mod mail;
mod manager;
mod own;
mod refusals;
mod stage;
mod sync;
mod tasks;
mod undo;
mod waiting;
mod watch;
mod wires;
