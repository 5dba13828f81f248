//! Teams against workspaces that are only told of.

mod fake;
mod guests;
mod life;
mod mail;
mod quota;
mod stage;
mod tasks;
mod undo;
mod watch;
