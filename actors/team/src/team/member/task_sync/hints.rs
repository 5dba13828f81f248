//! Hints that it is worth looking at a guest: by itself, or by time; paced by a token bucket.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{
    WorkspaceId,
    ports::{TASK_POLL, Tasks},
};
use tokio::time::Instant;

use super::TaskSyncEvent;
use crate::team::member::{self, Post};

/// Pause before a workspace that was not found is looked for again: at a start it is found a little later.
const AGAIN: Duration = Duration::from_millis(50);
/// Hints that are followed at once, and how soon one more is allowed: a guest can send any number.
const HINTS: u32 = 64;
const HINT_EVERY: Duration = Duration::from_millis(10);

/// Posts hints to look at the guest, for as long as somebody receives them.
pub(super) async fn watch(port: Arc<dyn Tasks>, id: WorkspaceId, post: Post) {
    let mut pace = Pace { left: HINTS, since: Instant::now() };
    let mut wait = AGAIN;
    let hint = || post(member::MemberEvent::Sync(TaskSyncEvent::Hint));
    loop {
        let Ok(mut hints) = port.hints(id).await else {
            // Calls to the workspace find out whether it is gone.
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(TASK_POLL);
            if hint().is_err() {
                return;
            }
            continue;
        };
        wait = AGAIN;
        // The first hint covers results from before the subscription.
        let mut more = true;
        while more {
            tokio::time::sleep(pace.step(Instant::now())).await;
            if hint().is_err() {
                return;
            }
            more = hints.next().await;
        }
    }
}

/// A token bucket of hints.
struct Pace {
    left: u32,
    since: Instant,
}

impl Pace {
    /// Time to wait before the next is followed.
    fn step(&mut self, now: Instant) -> Duration {
        let gained = now.saturating_duration_since(self.since).as_millis() / HINT_EVERY.as_millis();
        if gained > 0 {
            let gained = u32::try_from(gained).unwrap_or(HINTS);
            (self.left, self.since) = (HINTS.min(self.left.saturating_add(gained)), now);
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Duration::ZERO
            }
            None => {
                // The token gained during the wait is spent on this hint.
                self.since = now + HINT_EVERY;
                HINT_EVERY
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_hints_is_followed_a_hundred_times_a_second() {
        let begun = Instant::now();
        let (mut now, mut followed) = (begun, 0);
        let mut pace = Pace { left: HINTS, since: begun };
        while now < begun + Duration::from_secs(10) {
            now += pace.step(now) + Duration::from_micros(50);
            followed += 1;
        }
        assert!((1_000..1_100).contains(&followed), "{followed}");
        let later = now + Duration::from_secs(60);
        let burst = (0..HINTS).filter(|_| pace.step(later).is_zero()).count();
        assert_eq!(burst, HINTS as usize, "after a pause as many at once");
    }
}
