//! Repositories over a scripted daemon: what is recorded, refused, told, finished after a crash. The real
//! git is in the tests of real machines.

mod crashes;
mod daemon;
mod life;
mod refusals;
mod stage;
