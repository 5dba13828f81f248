//! Quota tiers: what a user may call in a window of time, at once, and hold at a time.
//!
//! A tier is configuration, and each user has one. A limit counts the calls of some tools, in a window
//! or in flight; a call that is over any of its limits takes from none. Windows are durable
//! ([`counts::CallCounts`]): a number of calls is written down before they are made, so a restart of
//! the daemon may forget calls that were left and never grants one twice.

mod counts;
mod limit;
mod meter;
mod options;

pub(crate) use counts::CallCounts;
pub(crate) use meter::{CallMeter, CallPermit};
pub use options::{CallLimit, LimitPeriod, QuotaTier};

#[cfg(test)]
mod tests;
