//! Writing one workspace's records, up to the moment when they are removed.

use std::sync::Arc;

use tokio::sync::watch;

/// Lets writers in until it is closed. A record written after its stream was removed would begin a
/// stream of its own, which no start of the daemon could make sense of. Clones are one gate.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<watch::Sender<State>>);

#[derive(Debug, Default)]
struct State {
    closed: bool,
    inside: usize,
}

/// A writer; dropped when its write came to its end.
#[derive(Debug)]
pub(crate) struct Inside(Gate);

impl Gate {
    /// `None` when it is closed.
    pub(crate) fn enter(&self) -> Option<Inside> {
        let mut entered = false;
        self.0.send_if_modified(|state| {
            entered = !state.closed;
            state.inside += usize::from(entered);
            entered
        });
        entered.then(|| Inside(self.clone()))
    }

    /// Lets nobody in from now on, and returns when all are out.
    pub(crate) async fn close(&self) {
        let mut state = self.0.subscribe();
        self.0.send_modify(|state| state.closed = true);
        // The sender is this gate.
        let _all_out = state.wait_for(|state| state.inside == 0).await.is_ok();
    }

    /// What was to be removed is still there.
    pub(crate) fn open(&self) {
        self.0.send_modify(|state| state.closed = false);
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.inside -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_closes_when_the_last_is_out_and_lets_nobody_in() {
        let gate = Gate::default();
        let writer = gate.enter().expect("it is open");
        let closing = tokio::spawn({
            let gate = gate.clone();
            async move { gate.close().await }
        });
        while gate.enter().is_some() {
            tokio::task::yield_now().await;
        }
        assert!(!closing.is_finished());
        drop(writer);
        closing.await.unwrap();
        assert!(gate.enter().is_none());
        gate.open();
        assert!(gate.enter().is_some());
    }
}
