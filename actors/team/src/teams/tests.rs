//! Teams against workspaces that are only told of.

mod fake;
mod life;
mod mail;
mod quota;
mod stage;
mod undo;
mod watch;
