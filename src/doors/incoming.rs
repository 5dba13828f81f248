//! Admission control by memory: what long messages of all clients together may take, on their way
//! in and in work. A user takes at most half of what the others leave.
//!
//! How long a message is shows at its end. So one that goes beyond [`SHORT_BYTES`] reserves as much
//! as the longest may take, and waits unread while others have it; when it is whole it keeps what it
//! takes, until its handler ends. A message that is not whole in time ends its connection: nobody
//! holds room by sending half of one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hivekeep_kernel::{PoolFull, User};
use tokio::{sync::Notify, time::Instant};

use crate::config::Config;

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
        self.kib.lock().unwrap_or_else(PoisonError::into_inner)
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
}
