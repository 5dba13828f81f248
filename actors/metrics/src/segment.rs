//! Segment: a part of a day's entries as a stream of the journal, with the day's tally up to its end.
//!
//! ```text
//! Opened{tally of the day so far} ─ Added* ─ Closed ─▶ snapshot: head, and the entries compressed
//!                                     └─ Folded{events, upto}     └─ Sent{upto}: they are in InfluxDB
//! ```
//! A segment is opened only when everything in the one before is durable, so that its tally counts
//! nothing that a crash could still take back.

use std::sync::Arc;

use chrono::NaiveDate;
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};

use crate::tally::{DAEMON, DayTally, MetricEntry};

/// Entries at which a segment is closed.
const FULL_ENTRIES: u32 = 1_000;
/// Bytes at which a segment is closed.
const FULL_BYTES: u64 = 1024 * 1024;
/// Entries that a segment takes while it cannot be closed; entries of a later one have larger places.
pub(crate) const MOST_ENTRIES: u32 = 4_096;
/// Bytes of a piece of a record: a day's tally can be larger than the journal's records.
pub(crate) const PIECE_BYTES: usize = 256 * 1024;
/// zstd's level.
const LEVEL: i32 = 3;

/// Position of a segment: its day, and its number within that, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentId {
    pub(crate) date: NaiveDate,
    pub(crate) number: u32,
}

impl SegmentId {
    /// Reads the id of a stream.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (date, number) = text.split_once('.')?;
        Some(Self { date: date.parse().ok()?, number: number.parse().ok()? })
    }
}

impl std::fmt::Display for SegmentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:06}", self.date, self.number)
    }
}

/// Summary of a segment, without its entries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SegmentHead {
    /// Counts of the day up to the end of this segment.
    pub(crate) tally: DayTally,
    pub(crate) entries: u32,
    /// Size of the entries as JSON.
    pub(crate) bytes: u64,
    pub(crate) first_ms: Option<i64>,
    pub(crate) last_ms: Option<i64>,
    /// Nothing is added any more.
    pub(crate) closed: bool,
    /// Last event of the daemon that is counted here or was looked at before; 0 for none.
    pub(crate) events_upto: u64,
    /// Entries from the first on that are in the other database.
    pub(crate) sent: u32,
}

impl SegmentHead {
    pub(crate) fn is_full(&self) -> bool {
        self.entries >= FULL_ENTRIES || self.bytes >= FULL_BYTES
    }

    pub(crate) fn takes_none(&self) -> bool {
        self.entries >= MOST_ENTRIES || self.bytes >= 4 * FULL_BYTES
    }

    fn count(&mut self, entry: &MetricEntry) {
        self.tally.add(entry);
        self.entries += 1;
        self.bytes += entry.bytes();
        self.first_ms = Some(self.first_ms.map_or(entry.at_ms, |first| first.min(entry.at_ms)));
        self.last_ms = Some(self.last_ms.map_or(entry.at_ms, |last| last.max(entry.at_ms)));
    }
}

/// Record of a segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SegmentRecord {
    /// The segment begins, with the day's tally so far.
    Opened { tally: DayTally },
    /// A session recorded something.
    Added(Box<MetricEntry>),
    /// Events of the daemon were counted, up to this one, but for some that the day had no room for.
    Folded { entries: Vec<MetricEntry>, uncounted: u64, upto: u64 },
    /// The first so many entries are in the other database.
    Sent { upto: u32 },
    /// Nothing is added any more.
    Closed,
}

/// State of a segment.
#[derive(Debug, Clone)]
pub(crate) struct MetricSegment {
    pub(crate) head: SegmentHead,
    /// Entries of the snapshot: lines of JSON, compressed.
    packed: Option<Arc<[u8]>>,
    /// Entries after it.
    recent: Vec<MetricEntry>,
}

impl MetricSegment {
    /// All entries, in their order. Unpacks them.
    ///
    /// # Errors
    /// The reason, for a snapshot that cannot be read.
    pub(crate) fn entries(&self) -> Result<Vec<MetricEntry>, String> {
        let mut entries = match &self.packed {
            None => Vec::new(),
            Some(packed) => {
                let text = zstd::decode_all(&packed[..]).map_err(|error| error.to_string())?;
                let lines = serde_json::Deserializer::from_slice(&text).into_iter();
                lines.collect::<Result<_, _>>().map_err(|error| error.to_string())?
            }
        };
        entries.extend(self.recent.iter().cloned());
        Ok(entries)
    }

    fn add(&mut self, entry: MetricEntry) {
        self.head.count(&entry);
        self.recent.push(entry);
    }
}

impl Sourced for MetricSegment {
    const KIND: &'static str = "metrics";
    const PIECE_BYTES: Option<usize> = Some(PIECE_BYTES);
    type Record = SegmentRecord;

    fn begin(record: SegmentRecord) -> Result<Self, SegmentRecord> {
        match record {
            SegmentRecord::Opened { tally } => Ok(Self {
                head: SegmentHead { tally, ..SegmentHead::default() },
                packed: None,
                recent: Vec::new(),
            }),
            other => Err(other),
        }
    }

    fn apply(&mut self, record: SegmentRecord) -> Result<(), SegmentRecord> {
        let head = &mut self.head;
        match record {
            SegmentRecord::Added(entry) if !head.closed => self.add(*entry),
            SegmentRecord::Folded { entries, uncounted, upto }
                if !head.closed && upto > head.events_upto =>
            {
                head.events_upto = upto;
                if uncounted > 0 {
                    let daemon = head.tally.0.entry(DAEMON.to_owned()).or_default();
                    daemon.uncounted += uncounted;
                }
                entries.into_iter().for_each(|entry| self.add(entry));
            }
            SegmentRecord::Sent { upto } if (head.sent..=head.entries).contains(&upto) => {
                head.sent = upto;
            }
            SegmentRecord::Closed => head.closed = true,
            other => return Err(other),
        }
        Ok(())
    }

    /// A closed segment is folded once, and again behind each record of what was sent.
    fn fold_due(&self, unfolded: usize) -> bool {
        self.head.closed && unfolded > 0
    }

    fn fold(&self) -> Option<Vec<u8>> {
        let packed = match &self.packed {
            Some(packed) if self.recent.is_empty() => packed.to_vec(),
            _ => {
                let mut lines = Vec::new();
                for entry in self.entries().ok()? {
                    serde_json::to_writer(&mut lines, &entry).ok()?;
                    lines.push(b'\n');
                }
                zstd::encode_all(&lines[..], LEVEL).ok()?
            }
        };
        let head = serde_json::to_vec(&self.head).ok()?;
        let length = u32::try_from(head.len()).ok()?.to_be_bytes();
        Some([&length[..], &head, &packed].concat())
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        let (length, rest) = snapshot.split_first_chunk::<4>().ok_or("it is too short")?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|it| it.to_string())?;
        let (head, packed) = rest.split_at_checked(length).ok_or("its head is cut short")?;
        let head = serde_json::from_slice(head).map_err(|error| error.to_string())?;
        Ok(Self { head, packed: Some(packed.into()), recent: Vec::new() })
    }
}
