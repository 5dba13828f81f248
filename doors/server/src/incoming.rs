//! Admission control of messages, by the memory that they take and by their pace.
//!
//! Long messages of all clients together take a bounded part of memory, on their way in and in work. A user takes at
//! most half of what the others leave. How long a message is shows at its end. So one that goes beyond [`SHORT_BYTES`]
//! reserves as much as the longest may take, and waits unread while others have it; when it is whole it keeps what it
//! takes, until its handler ends. A message that is not whole in time ends its connection: nobody
//! holds room by sending half of one.
//!
//! What a client sends is paced by token buckets before it is parsed. Whoever sends more waits, unread, and is refused
//! nothing.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter, clock::Clock};
use hivekeep_config::{Config, DaemonOptions};
use hivekeep_kernel::{PoolFull, User, lock};
use tokio::{sync::Notify, time::Instant};

/// Shorter messages need no reservation. Most are.
pub const SHORT_BYTES: usize = 64 * 1024;
/// Messages of the longest kind that there is room for.
pub const LONGEST: usize = 8;
/// Time that a message may take from its reservation to its end.
const WHOLE_WITHIN: Duration = Duration::from_secs(30);

/// The room, shared by all doors. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MessageRoom {
    kib: Arc<Mutex<HashMap<User, usize>>>,
    freed: Arc<Notify>,
    longest_kib: usize,
}

/// A part of it, until it is dropped.
#[derive(Debug)]
pub struct ReservedRoom {
    room: MessageRoom,
    user: User,
    kib: usize,
    /// The message has to be whole by then.
    pub until: Instant,
}

impl MessageRoom {
    /// Makes the configured room: eight of the longest messages that any door takes.
    pub fn new(config: &Config) -> Self {
        let bodies = config.http.mcp.max_body_mb;
        #[cfg(feature = "full")]
        let bodies = bodies.max(config.http.api.max_body_mb).max(config.http.e2b.max_body_mb);
        let longest_mb = config.daemon.max_message_mb.max(bodies);
        // Eight of them are counted in the same type.
        let longest_kib = longest_mb.saturating_mul(1024).min(usize::MAX / LONGEST);
        Self { kib: Arc::default(), freed: Arc::default(), longest_kib }
    }

    /// Waits for room for a user's message of any length. Cancelling it loses nothing.
    pub async fn reserve(&self, user: User) -> ReservedRoom {
        loop {
            let freed = self.freed.notified();
            if self.take(user) {
                let until = Instant::now() + WHOLE_WITHIN;
                return ReservedRoom { room: self.clone(), user, kib: self.longest_kib, until };
            }
            freed.await;
        }
    }

    fn take(&self, user: User) -> bool {
        let mut held = self.held();
        let (own, all) = (held.get(&user).copied().unwrap_or_default(), held.values().sum());
        let longest = |kib: usize| kib.div_ceil(self.longest_kib);
        let option = "daemon.max_message_mb";
        let fits = PoolFull::check(option, LONGEST, longest(own), longest(all)).is_ok();
        if fits {
            held.insert(user, own + self.longest_kib);
        }
        fits
    }

    fn held(&self) -> MutexGuard<'_, HashMap<User, usize>> {
        // Nothing between lock and unlock panics; were it so, the counts still hold.
        lock(&self.kib)
    }
}

impl ReservedRoom {
    /// Gives back what a message of this length does not take.
    pub fn shrink(&mut self, bytes: usize) {
        let taken = bytes.div_ceil(1024).min(self.kib);
        let mut held = self.room.held();
        if let Some(own) = held.get_mut(&self.user) {
            *own -= self.kib - taken;
            if *own == 0 {
                held.remove(&self.user);
            }
        }
        self.kib = taken;
        drop(held);
        self.room.freed.notify_waiters();
    }
}

impl Drop for ReservedRoom {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

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

    fn of(user: u32) -> User {
        User::Uid(user)
    }

    #[test]
    fn room_for_messages_of_any_length_can_be_configured() {
        for megabytes in [1, 4 << 20, usize::MAX] {
            let mut config = Config::default();
            config.daemon.max_message_mb = megabytes;
            let incoming = MessageRoom::new(&config);
            assert!((0..8).all(|user| incoming.take(of(user))), "{megabytes}");
            assert!(!incoming.take(of(8)), "{megabytes}");
        }
    }

    #[cfg(feature = "full")]
    #[test]
    fn room_is_for_the_longest_message_of_any_door() {
        let lengthen: [fn(&mut Config); 4] = [
            |config| config.daemon.max_message_mb = 100,
            |config| config.http.mcp.max_body_mb = 100,
            |config| config.http.api.max_body_mb = 100,
            |config| config.http.e2b.max_body_mb = 100,
        ];
        for (nth, lengthen) in lengthen.into_iter().enumerate() {
            let mut config = Config::default();
            lengthen(&mut config);
            assert_eq!(MessageRoom::new(&config).longest_kib, 100 * 1024, "{nth}");
        }
    }

    #[tokio::test]
    async fn eight_of_the_longest_fit_or_many_that_turned_out_short() {
        let incoming = MessageRoom::new(&Config::default());
        let taken = || incoming.held().values().sum::<usize>();
        let mut held = Vec::new();
        for user in 0..8 {
            held.push(incoming.reserve(of(user)).await);
        }
        assert_eq!(taken(), 8 * incoming.longest_kib);
        held[0].shrink(100_000);
        assert_eq!(taken(), 7 * incoming.longest_kib + 98);
        held[0].shrink(usize::MAX);
        assert_eq!(taken(), 7 * incoming.longest_kib + 98);
        drop(held);
        assert!(incoming.held().is_empty(), "nobody is remembered");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_sends_much_waits_and_nobody_else() {
        let incoming = MessageRoom::new(&Config::default());
        let soon = |user| tokio::time::timeout(Duration::from_secs(1), incoming.reserve(of(user)));
        let mut held = Vec::new();
        while let Ok(room) = soon(1).await {
            held.push(room);
        }
        assert_eq!(held.len(), LONGEST / 2);
        held[0].shrink(100_000);
        assert!(soon(1).await.is_err(), "what a short one keeps counts");
        held[1].shrink(100_000);
        held.push(soon(1).await.expect("two short ones are less than a long one"));
        let waiting = tokio::spawn({
            let incoming = incoming.clone();
            async move { incoming.reserve(of(1)).await }
        });
        held.push(soon(2).await.expect("there is room for another"));
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        held.clear();
        waiting.await.expect("it goes on once there is room");
        assert!(incoming.held().is_empty());
    }

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
