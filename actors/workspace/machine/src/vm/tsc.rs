//! The host's time stamp counter.
//!
//! Under software emulation the guest reads the host's counter but has no clock to calibrate it against: its
//! kernel hangs unless it is given the frequency.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

/// Long enough that the two clocks' readings, some 100 ns apart, err by a part per million.
const SPAN: Duration = Duration::from_millis(100);

/// Measures the counter against the monotonic clock. Blocks for 100 ms.
pub(super) fn measure_khz() -> u64 {
    let (ticks_from, from) = read_pair();
    std::thread::sleep(SPAN);
    let (ticks_to, to) = read_pair();
    let nanos = to.duration_since(from).as_nanos().max(1);
    (u128::from(ticks_to.wrapping_sub(ticks_from)) * 1_000_000 / nanos) as u64
}

/// Reads both clocks as near together as possible: the tightest of some tries, for this thread may be
/// interrupted between the two readings.
fn read_pair() -> (u64, Instant) {
    let reading = || {
        let before = counter();
        let now = Instant::now();
        let after = counter();
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), now)
    };
    let best = (0..16).map(|_| reading()).min_by_key(|(width, ..)| *width);
    let (_, ticks, now) = best.unwrap_or_else(reading);
    (ticks, now)
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux leaves it to programs.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_measurements_agree_and_are_a_processors_frequency() {
        let (one, two) = (measure_khz(), measure_khz());
        assert!((500_000..8_000_000).contains(&one), "{one}");
        assert!(one.abs_diff(two) < one / 1_000, "{one} {two}");
    }
}
