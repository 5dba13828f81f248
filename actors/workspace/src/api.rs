//! What tools take and answer: plain types, which their rows and the engines import.

pub mod diagnostics;
pub mod execution;
pub mod files;
pub mod lifecycle;
pub mod merge;
pub mod network;
pub mod parallel;
pub mod pool;
pub mod prepare;
pub mod session;
pub mod snapshots;
