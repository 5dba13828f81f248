//! Teams against workspaces that are only told of.

mod fake;
mod life;
mod mail;
mod stage;
mod undo;
