//! Once-only continuation: called exactly once, even if the writer panics.

use hivekeep_store::StreamId;

use super::LogError;

type Then = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// Continuation of a decision. Dropped uncalled, by a writer that panics, it reports that the log
/// has ended.
pub(super) struct Answer {
    stream: StreamId,
    then: Option<Then>,
}

impl Answer {
    pub(super) fn new(
        stream: StreamId,
        then: impl FnOnce(Result<(), LogError>) + Send + 'static,
    ) -> Self {
        Self { stream, then: Some(Box::new(then)) }
    }

    pub(super) fn give(mut self, outcome: Result<(), LogError>) {
        if let Some(then) = self.then.take() {
            then(outcome);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(then) = self.then.take() {
            then(Err(unwritten(self.stream.clone())));
        }
    }
}

/// Error of a decision that was lost because its log ended.
pub(super) fn unwritten(stream: StreamId) -> LogError {
    LogError::Ended { stream, why: "it ended before this was written".to_owned() }
}
