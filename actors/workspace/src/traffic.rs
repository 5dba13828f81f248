//! Counts of creations that people wait for, and of the pool's own, which wait for those.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

/// Counts of the creations under way: those that people wait for, and the pool's. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traffic {
    people: Count,
    pools: Count,
}

type Count = Arc<watch::Sender<usize>>;

/// A creation under way; dropped when it is over.
#[derive(Debug)]
pub(crate) struct Passing(Count);

impl Traffic {
    /// Counts a creation that somebody waits for.
    pub(crate) fn pass(&self) -> Passing {
        Passing::of(&self.people)
    }

    /// Counts a creation of the pool.
    pub(crate) fn make(&self) -> Passing {
        Passing::of(&self.pools)
    }

    /// Whether the pool makes something now.
    pub(crate) fn makes(&self) -> bool {
        *self.pools.borrow() > 0
    }

    /// Waits until nobody has waited for a creation for as long as `calm`, at most for `most`: a pool that
    /// never got a turn would make every creation slow.
    pub(crate) async fn quiet(&self, calm: Duration, most: Duration) {
        let mut count = self.people.subscribe();
        let calmed = async {
            // The channel stays open: its sender is this count.
            while count.wait_for(|count| *count == 0).await.is_ok() {
                if tokio::time::timeout(calm, count.changed()).await.is_err() {
                    return;
                }
            }
        };
        let _calm = tokio::time::timeout(most, calmed).await;
    }
}

impl Passing {
    fn of(count: &Count) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn it_is_quiet_when_none_has_passed_for_a_while_or_the_patience_is_over() {
        let traffic = Traffic::default();
        let begun = tokio::time::Instant::now();
        traffic.quiet(CALM, CALM * 5).await;
        assert_eq!(begun.elapsed(), CALM);
        let (one, two) = (traffic.pass(), traffic.pass());
        drop(one);
        traffic.quiet(CALM, CALM * 5).await;
        assert_eq!(begun.elapsed(), CALM * 6);
        let waits = tokio::spawn({
            let traffic = traffic.clone();
            async move { traffic.quiet(CALM, CALM * 3600).await }
        });
        tokio::time::sleep(CALM).await;
        drop(two);
        // A creation that comes before the calm begins the wait anew.
        tokio::time::sleep(CALM / 2).await;
        drop(traffic.pass());
        waits.await.unwrap();
        assert_eq!(begun.elapsed(), CALM * 17 / 2);
    }
}
