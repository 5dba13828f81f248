//! Creations that people wait for; the pool's own wait for them.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

/// How many creations people wait for now. Clones are one count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traffic(Arc<watch::Sender<usize>>);

/// One of them; dropped when it is over.
#[derive(Debug)]
pub(crate) struct Passing(Traffic);

impl Traffic {
    /// A creation begins.
    pub(crate) fn pass(&self) -> Passing {
        self.0.send_modify(|count| *count += 1);
        Passing(self.clone())
    }

    /// Returns when there is none, or after `most`: a pool that never got a turn would make every
    /// creation slow.
    pub(crate) async fn quiet(&self, most: Duration) {
        let mut count = self.0.subscribe();
        let _quiet = tokio::time::timeout(most, count.wait_for(|count| *count == 0)).await;
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_quiet_when_the_last_has_passed_or_the_patience_is_over() {
        let traffic = Traffic::default();
        traffic.quiet(Duration::from_secs(1)).await;
        let (one, two) = (traffic.pass(), traffic.pass());
        drop(one);
        let begun = tokio::time::Instant::now();
        traffic.quiet(Duration::from_secs(5)).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
        let waits = tokio::spawn({
            let traffic = traffic.clone();
            async move { traffic.quiet(Duration::from_secs(3600)).await }
        });
        drop(two);
        waits.await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(6));
    }
}
