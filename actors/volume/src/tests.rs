//! Volumes on real loop devices, for two users; the states and paths without.

mod files;
mod life;
mod stage;
mod state;
