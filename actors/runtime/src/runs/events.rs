//! Events of a run: its records as they are shown, read from its stream.

use chrono::{DateTime, Utc};
use hivekeep_kernel::ToolError;
use hivekeep_store::{Journal, Seq, StreamId};
use serde_json::Value;

use super::RunState;
use crate::log;

/// A record as it is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEvent {
    /// Name of what happened.
    pub event_type: &'static str,
    /// Facts about it.
    pub payload: Value,
}

/// An event at its place.
#[derive(Debug, Clone, PartialEq)]
pub struct SequencedEvent {
    /// Place of its record in the stream, from 1 and without a gap.
    pub sequence: u64,
    /// Time of its record.
    pub recorded_at: DateTime<Utc>,
    /// Record as it is shown.
    pub event: RunEvent,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEvents {
    /// Events of the page, in order.
    pub events: Vec<SequencedEvent>,
    /// Number of events that there are.
    pub total: usize,
}

/// Reads a page: of the other records no more than their number. A record without a time has that of the one before
/// it.
///
/// # Errors
/// When the stream cannot be read.
pub(super) async fn read<S: RunState>(
    journal: &Journal,
    stream: &StreamId,
    state: &S,
    offset: usize,
    limit: usize,
) -> Result<RunEvents, ToolError> {
    let records = log::read_encoded::<S>(journal, stream).await?;
    let total = records.len();
    let first = offset.min(total);
    let mut recorded_at = state.began_at();
    for at in (0..first).rev() {
        if let Some(time) = S::recorded_at(&records.decode(at)?) {
            recorded_at = time;
            break;
        }
    }
    let mut events = Vec::new();
    for at in first..first.saturating_add(limit).min(total) {
        let record = records.decode(at)?;
        recorded_at = S::recorded_at(&record).unwrap_or(recorded_at);
        events.push(SequencedEvent {
            sequence: at as u64 + 1,
            recorded_at,
            event: S::event(&record),
        });
    }
    Ok(RunEvents { events, total })
}

/// Pieces of records that are read at a time.
const PIECES: usize = 64;

/// Place in the events of a run up to which somebody has read them. Reading on costs what is read, however much was
/// before.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunCursor {
    /// Number of records that were read, and the position of the last.
    read: u64,
    position: Seq,
    /// Time of the last record that has one.
    at: Option<DateTime<Utc>>,
    /// Sequence of the last event that is not wanted.
    known: u64,
}

impl RunCursor {
    /// Place behind an event, which may not be there yet.
    pub fn behind(sequence: u64) -> Self {
        Self { known: sequence, ..Self::default() }
    }

    /// Reads the next events, some at a time; none at the end.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub(super) async fn read<S: RunState>(
        &mut self,
        journal: &Journal,
        stream: &StreamId,
        state: &S,
    ) -> Result<Vec<SequencedEvent>, ToolError> {
        loop {
            let records = log::read_behind::<S>(journal, stream, self.position, PIECES).await?;
            let (end, mut events) = (records.is_empty(), Vec::new());
            for (position, record) in records {
                self.at = S::recorded_at(&record).or(self.at);
                (self.position, self.read) = (position, self.read + 1);
                if self.read > self.known {
                    let recorded_at = self.at.unwrap_or_else(|| state.began_at());
                    let (sequence, event) = (self.read, S::event(&record));
                    events.push(SequencedEvent { sequence, recorded_at, event });
                }
            }
            if end || !events.is_empty() {
                return Ok(events);
            }
        }
    }
}
