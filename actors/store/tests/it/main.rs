//! Integration tests of the store. One binary, one file per promise.

#![allow(clippy::unwrap_used)]

mod actor;
mod backup;
mod churn;
mod closing;
mod compaction;
mod crash;
mod damage;
mod events;
mod failure;
mod full_disk;
mod identity;
mod killed;
mod model;
mod queue;
mod util;
