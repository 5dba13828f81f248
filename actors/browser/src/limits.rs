//! Bounds that several tools share.

/// Longest time of a call about a page.
pub(crate) const MAX_SECS: u64 = 120;
/// Longest selector.
pub(crate) const MAX_SELECTOR: usize = 2_000;

pub(crate) fn default_secs() -> u64 {
    30
}
