//! Admission control by memory: what long messages of all clients together may take, on their way
//! in and in work.
//!
//! How long a message is shows at its end. So one that goes beyond [`SHORT_BYTES`] reserves as much
//! as the longest may take, and waits unread while others have it; when it is whole it keeps what it
//! takes, until its handler ends. A message that is not whole in time ends its connection: nobody
//! holds room by sending half of one.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::config::Config;

/// Shorter messages need no reservation. Most are.
pub const SHORT_BYTES: usize = 64 * 1024;
/// Messages of the longest kind that there is room for.
pub const LONGEST: u32 = 8;
/// Time that a message may take from its reservation to its end.
const WHOLE_WITHIN: Duration = Duration::from_secs(30);

/// The room, shared by all doors. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MessageRoom {
    kib: Arc<Semaphore>,
    longest_kib: u32,
}

/// A part of it, until it is dropped.
#[derive(Debug)]
pub struct ReservedRoom {
    kib: OwnedSemaphorePermit,
    /// The message has to be whole by then.
    pub until: Instant,
}

impl MessageRoom {
    /// Makes the configured room: eight of the longest messages that any door takes.
    pub fn new(config: &Config) -> Self {
        let bodies = config.mcp_http.max_body_mb;
        #[cfg(feature = "full")]
        let bodies = bodies.max(config.http_api.max_body_mb).max(config.doors.e2b.max_body_mb);
        let longest_mb = config.daemon.max_message_mb.max(bodies);
        // Eight of them are counted in the same type.
        let longest_kib = u32::try_from(longest_mb.saturating_mul(1024)).unwrap_or(u32::MAX);
        let longest_kib = longest_kib.min(u32::MAX / LONGEST);
        let kib = Arc::new(Semaphore::new((longest_kib * LONGEST) as usize));
        Self { kib, longest_kib }
    }

    /// Waits for room for a message of any length. Cancelling it loses nothing.
    pub async fn reserve(&self) -> Option<ReservedRoom> {
        // It is never closed.
        let kib = self.kib.clone().acquire_many_owned(self.longest_kib).await.ok()?;
        Some(ReservedRoom { kib, until: Instant::now() + WHOLE_WITHIN })
    }
}

impl ReservedRoom {
    /// Gives back what a message of this length does not take.
    pub fn shrink(&mut self, bytes: usize) {
        let taken = bytes.div_ceil(1024).min(self.kib.num_permits());
        drop(self.kib.split(self.kib.num_permits() - taken));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_messages_of_any_length_can_be_configured() {
        for megabytes in [1, 4 << 20, usize::MAX] {
            let mut config = Config::default();
            config.daemon.max_message_mb = megabytes;
            let incoming = MessageRoom::new(&config);
            assert!(incoming.kib.available_permits() >= incoming.longest_kib as usize * 8);
        }
    }

    #[cfg(feature = "full")]
    #[test]
    fn room_is_for_the_longest_message_of_any_door() {
        let lengthen: [fn(&mut Config); 4] = [
            |config| config.daemon.max_message_mb = 100,
            |config| config.mcp_http.max_body_mb = 100,
            |config| config.http_api.max_body_mb = 100,
            |config| config.doors.e2b.max_body_mb = 100,
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
        let mut held = Vec::new();
        for _ in 0..LONGEST {
            held.push(incoming.reserve().await.expect("room"));
        }
        assert_eq!(incoming.kib.available_permits(), 0);
        held[0].shrink(100_000);
        assert_eq!(incoming.kib.available_permits(), incoming.longest_kib as usize - 98);
        held[0].shrink(usize::MAX);
        assert_eq!(incoming.kib.available_permits(), incoming.longest_kib as usize - 98);
        drop(held);
        let all = incoming.longest_kib * LONGEST;
        assert_eq!(incoming.kib.available_permits(), all as usize);
    }
}
