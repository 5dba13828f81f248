//! The one task that writes a log, as long as something waits to be written.

use std::sync::Arc;

use super::{Entry, Inner, LogError, Sourced, follow};

/// Decisions that go together.
const BATCH: usize = 64;

/// Writes all that waits, and ends.
pub(super) async fn all<S: Sourced>(log: Arc<Inner<S>>)
where
    S::Record: Clone,
{
    while let Some(entries) = next(&log) {
        let (records, events) = encode(&entries);
        let written = match records.is_empty() && events.is_empty() {
            true => Ok(None),
            false => {
                let append = log.journal.append_and_publish(&log.stream, records, events);
                append.await.map(Some)
            }
        };
        match written {
            Ok(upto) => {
                if let Some(upto) = upto {
                    apply(&log, &entries, upto);
                }
                // Whoever decided may have gone.
                entries.into_iter().for_each(|entry| drop(entry.answer.send(Ok(()))));
                fold(&log).await;
            }
            Err(error) => return broken(&log, entries, error.to_string()),
        }
    }
}

/// What goes together next; `None` when there is nothing, and this task is to end.
fn next<S: Sourced>(log: &Inner<S>) -> Option<Vec<Entry<S>>> {
    let mut held = log.held();
    let batch = held.waiting.len().min(BATCH);
    if batch == 0 {
        held.writing = false;
        log.idle.send_replace(true);
        return None;
    }
    Some(held.waiting.drain(..batch).collect())
}

fn encode<S: Sourced>(entries: &[Entry<S>]) -> (Vec<Vec<u8>>, Vec<hivekeep_store::NewEvent>) {
    let records = entries.iter().flat_map(|entry| &entry.decision.records);
    let records = records.map(|record| serde_json::to_vec(record).expect("records are plain data"));
    let events = entries.iter().flat_map(|entry| entry.decision.events.iter().cloned());
    (records.collect(), events.collect())
}

fn apply<S: Sourced>(log: &Inner<S>, entries: &[Entry<S>], upto: hivekeep_store::Seq)
where
    S::Record: Clone,
{
    let mut held = log.held();
    for record in entries.iter().flat_map(|entry| entry.decision.records.iter().cloned()) {
        held.unfolded += 1;
        follow(&mut held.durable, record)
            .unwrap_or_else(|record| panic!("{record:?} does not follow, and was decided"));
    }
    // Events alone have no place in the stream.
    held.upto = held.upto.max(upto);
}

/// Makes a snapshot of a long stream.
async fn fold<S: Sourced>(log: &Inner<S>) {
    let (upto, bytes) = {
        let held = log.held();
        let long = held.unfolded >= S::FOLD_EVERY;
        let Some(bytes) = held.durable.as_ref().filter(|_| long).and_then(S::fold) else { return };
        (held.upto, bytes)
    };
    match log.journal.snapshot(&log.stream, upto, bytes).await {
        // Nothing else is written meanwhile.
        Ok(()) => log.held().unfolded = 0,
        Err(error) => {
            let stream = &log.stream;
            tracing::warn!(%stream, %error, "no snapshot was made; the stream stays long");
        }
    }
}

/// Ends the log: only the journal knows what of this is durable.
fn broken<S: Sourced>(log: &Inner<S>, entries: Vec<Entry<S>>, what: String) {
    let mut held = log.held();
    held.ended = Some(what.clone());
    held.writing = false;
    let waiting = std::mem::take(&mut held.waiting);
    drop(held);
    for entry in entries.into_iter().chain(waiting) {
        let error = LogError { stream: log.stream.clone(), what: what.clone() };
        // Whoever decided may have gone.
        drop(entry.answer.send(Err(error)));
    }
    log.idle.send_replace(true);
}
