//! Plain types that tools take and answer, for their rows and for the engines behind them.

pub mod diagnostics;
pub mod execution;
pub mod files;
pub mod lifecycle;
pub mod lifetime;
pub mod merge;
pub mod network;
pub mod parallel;
pub mod park;
pub mod pool;
pub mod prepare;
pub mod session;
pub mod snapshots;
