//! Times that end waits, and the one task that rings at the next of them. Nothing of it is recorded: at a start it
//! is made anew from what waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::sync::watch;

/// Longest sleep: the clock may be set meanwhile.
const MOST_SLEEP: Duration = Duration::from_secs(60);

/// See the module. One time for each id; sorted, so that one can be withdrawn.
pub(super) struct Timers<Id> {
    sorted: BTreeSet<(DateTime<Utc>, Id)>,
    times: BTreeMap<Id, DateTime<Utc>>,
    next: watch::Sender<Option<DateTime<Utc>>>,
}

impl<Id: Copy + Ord> Timers<Id> {
    /// Makes timers without a time.
    pub(super) fn new() -> Self {
        Self { sorted: BTreeSet::new(), times: BTreeMap::new(), next: watch::channel(None).0 }
    }

    /// Sets or withdraws the time of an id.
    pub(super) fn set(&mut self, id: Id, at: Option<DateTime<Utc>>) {
        let before = match at {
            Some(at) => self.times.insert(id, at),
            None => self.times.remove(&id),
        };
        if before == at {
            return;
        }
        self.sorted.extend(at.map(|at| (at, id)));
        if let Some(before) = before {
            self.sorted.remove(&(before, id));
        }
        self.tell();
    }

    /// Takes out the ids whose time has come. To be called after each ring: the next one waits for it.
    pub(super) fn take_due(&mut self, now: DateTime<Utc>) -> Vec<Id> {
        let due: Vec<_> = self.sorted.iter().take_while(|(at, _)| *at <= now).copied().collect();
        for time in &due {
            self.sorted.remove(time);
            self.times.remove(&time.1);
        }
        self.tell();
        due.into_iter().map(|(_, id)| id).collect()
    }

    fn tell(&self) {
        self.next.send_replace(self.sorted.first().map(|(at, _)| *at));
    }

    /// Calls `ring` at each time that is the next, and once a minute. Ends with the timers.
    pub(super) fn alarm<F: Fn() + Send>(
        &self,
        ring: F,
    ) -> impl Future<Output = ()> + Send + use<Id, F> {
        let mut next = self.next.subscribe();
        async move {
            loop {
                let at = *next.borrow_and_update();
                let wait = at.map(|at| (at - Utc::now()).to_std().unwrap_or_default());
                let wait = wait.unwrap_or(MOST_SLEEP).min(MOST_SLEEP);
                let changed = match tokio::time::timeout(wait, next.changed()).await {
                    Ok(changed) => changed,
                    Err(_time_is_over) => {
                        ring();
                        next.changed().await
                    }
                };
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn each_time_rings_once_and_one_that_is_withdrawn_never() {
        let mut timers = Timers::new();
        let (tell, mut rung) = mpsc::channel(100);
        let alarm = tokio::spawn(timers.alarm(move || tell.try_send(()).expect("few rings")));
        let soon = |ms| Some(Utc::now() + TimeDelta::milliseconds(ms));
        timers.set(1, soon(60));
        timers.set(2, soon(3_600_000));
        timers.set(3, soon(40));
        timers.set(2, soon(20));
        timers.set(3, None);
        let (mut order, mut rings) = (Vec::new(), 0);
        while order.len() < 2 {
            rung.recv().await.expect("it rings");
            rings += 1;
            order.extend(timers.take_due(Utc::now()));
        }
        assert_eq!(order, [2, 1]);
        // A change between a ring and its answer may ring once more.
        assert!(rings <= 7, "{rings}");
        assert!(timers.sorted.is_empty() && timers.times.is_empty());
        drop(timers);
        alarm.await.expect("it ends with them");
    }
}
