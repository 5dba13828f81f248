//! Backpressure by token buckets: what a client sends is paced before it is parsed. Whoever sends
//! more waits, unread, and is refused nothing.

use std::{num::NonZeroU32, time::Duration};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter, clock::Clock};

use crate::config::DaemonOptions;

/// Values in one message at most. No tool takes a hundredth of it.
pub const MAX_VALUES: usize = 100_000;
/// Above this a message is parsed where nobody else waits for it.
pub const LARGE_BYTES: usize = 256 * 1024;
/// Cost of a value beside its own bytes, as if it were so many bytes: it becomes an entry in a map
/// that is sorted, validated and written down.
const BYTES_PER_VALUE: usize = 64;

/// Cost of one message before it is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageCost {
    /// Upper bound of its values: commas and brackets outside of strings.
    pub values: usize,
    kib: u32,
}

impl MessageCost {
    /// Looks at each byte once, and at nothing else.
    pub fn of(json: &[u8]) -> Self {
        let (mut values, mut inside, mut escaped) = (0_usize, false, false);
        for byte in json {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = inside,
                b'"' => inside = !inside,
                b',' | b'[' | b'{' if !inside => values += 1,
                _ => {}
            }
        }
        let bytes = json.len() + values.min(MAX_VALUES) * BYTES_PER_VALUE;
        Self { values, kib: u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).max(1) }
    }

    /// True when the message is larger than any that can be meant.
    pub fn excessive(self) -> bool {
        self.values > MAX_VALUES
    }
}

/// The buckets of one client.
#[derive(Debug)]
pub struct RateBuckets {
    messages: DefaultDirectRateLimiter,
    kib: DefaultDirectRateLimiter,
    most_kib: NonZeroU32,
}

impl RateBuckets {
    /// Buckets by the configuration. A whole message of the longest kind passes at once.
    pub fn new(options: &DaemonOptions) -> Self {
        let per_second = kib(options.read_mb_per_sec.get());
        let longest = kib(u32::try_from(options.max_message_mb).unwrap_or(u32::MAX));
        let most_kib = per_second.max(longest);
        Self {
            messages: RateLimiter::direct(Quota::per_second(options.messages_per_sec)),
            kib: RateLimiter::direct(Quota::per_second(per_second).allow_burst(most_kib)),
            most_kib,
        }
    }

    /// Waits until the message may be parsed. When this is cancelled, the weight remembers what was
    /// paid already.
    pub async fn pass(&self, weight: &mut MessageCost) {
        if let Some(kib) = NonZeroU32::new(weight.kib) {
            self.take(&self.kib, kib.min(self.most_kib)).await;
            weight.kib = 0;
        }
        self.take(&self.messages, NonZeroU32::MIN).await;
    }

    async fn take(&self, bucket: &DefaultDirectRateLimiter, tokens: NonZeroU32) {
        // More than the bucket ever holds is not asked for.
        while let Ok(Err(later)) = bucket.check_n(tokens) {
            let wait = later.wait_time_from(bucket.clock().now());
            // The runtime's timer is as fine as this.
            tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
        }
    }
}

fn kib(mib: u32) -> NonZeroU32 {
    NonZeroU32::new(mib.saturating_mul(1024)).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (json, values) in [
            (r#"{"a":1,"b":[1,2,3]}"#, 5),
            (r#"{"a":"x,y{[\"],\\"}"#, 1),
            (r#"{"a":"\\","b":1}"#, 2),
            ("nonsense", 0),
        ] {
            assert_eq!(MessageCost::of(json.as_bytes()).values, values, "{json}");
        }
        let many = format!("[{}1]", "1,".repeat(MAX_VALUES));
        assert!(MessageCost::of(many.as_bytes()).excessive());
        assert!(!MessageCost::of(&vec![b'"'; 1 << 20]).excessive());
    }

    #[tokio::test]
    async fn the_longest_message_passes_at_once_and_the_next_waits() {
        let pace = RateBuckets::new(&DaemonOptions::default());
        let mut weight = MessageCost { values: 0, kib: u32::MAX };
        pace.pass(&mut weight).await;
        assert_eq!(weight.kib, 0, "paid once, however often it is asked for again");
        let again = pace.kib.check_n(pace.most_kib).expect("as much as it holds");
        assert!(again.is_err(), "it has to fill up first");
    }
}
