//! Teams against workspaces that are only told of.

mod below;
mod cards;
mod desk;
pub(crate) mod fake;
mod group;
mod guests;
mod life;
mod mail;
mod own;
mod quota;
mod stage;
mod strikes;
mod tasks;
mod undo;
mod watch;
mod wires;
