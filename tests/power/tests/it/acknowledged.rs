//! A model of the journal: what was acknowledged, and whether a journal has it.

use std::path::Path;

use hivekeep_store::{Journal, Options, Replay, StreamId};

/// Streams that only grow, and streams that are forgotten and written anew.
pub const KEPT: usize = 3;
pub const CHURNED: usize = 2;
/// Records of one turn of a stream that is written anew.
pub const RECORDS: usize = 20;
const RECORD_BYTES: usize = 4000;

/// Where a stream is that is written anew.
#[derive(Debug, Clone, Copy, Default)]
pub enum Turn {
    #[default]
    Before,
    /// This turn began: what was there may be gone, what comes may be there.
    Going(u64),
    Done(u64),
}

/// What the journal said was done.
#[derive(Debug, Clone, Default)]
pub struct Acknowledged {
    pub kept: [u64; KEPT],
    pub churned: [Turn; CHURNED],
    pub events: u64,
}

impl Turn {
    pub fn number(self) -> u64 {
        match self {
            Self::Before => 0,
            Self::Going(turn) | Self::Done(turn) => turn,
        }
    }
}

/// Compacts as often as it can.
pub fn options(disk: &Path) -> Options {
    let dir = disk.join("state");
    Options { compact_at_mb: 0, events_kept: 200, reserve_mb: 1, cache_mb: 16, ..Options::at(dir) }
}

pub fn kept(number: usize) -> StreamId {
    StreamId::new("kept", &number.to_string()).unwrap()
}

pub fn churned(number: usize) -> StreamId {
    StreamId::new("churned", &number.to_string()).unwrap()
}

/// A record of a stream that only grows.
pub fn small(stream: usize, seq: u64) -> Vec<u8> {
    let mut bytes = format!("{stream}:{seq}:").into_bytes();
    bytes.resize(bytes.len() + (seq as usize * 131) % 900, seq as u8);
    bytes
}

/// A record of a turn; some turns are larger than a segment of the database's log.
pub fn large(turn: u64, number: usize) -> Vec<u8> {
    let larger = if turn % 16 == 15 { 16 } else { 1 };
    let length = RECORD_BYTES / 2 + (turn as usize * 7 + number * 577) % RECORD_BYTES;
    let mut bytes = vec![(turn % 251) as u8; larger * length];
    bytes.extend(turn.to_le_bytes());
    bytes
}

/// The turn that a stream holds, whole; 0 when it holds none.
pub fn turn_of(replay: &Replay) -> Result<u64, String> {
    let Some((_, first)) = replay.records.first() else { return Ok(0) };
    let turn = first.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let whole = replay.records.len() == RECORDS
        && replay.records.iter().zip(0..).all(|((_, bytes), number)| *bytes == large(turn, number));
    if whole { Ok(turn) } else { Err(format!("a part of turn {turn}")) }
}

impl Acknowledged {
    /// Whether all of it is in the journal on this disk, and no part of anything else.
    pub fn check(&self, disk: &Path) -> Result<(), String> {
        let (journal, recovered) =
            Journal::open(options(disk)).map_err(|error| format!("it does not open: {error}"))?;
        let checked = self.check_journal(&journal);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(journal.close());
        checked.map_err(|lost| format!("{lost}; {recovered:?}"))
    }

    fn check_journal(&self, journal: &Journal) -> Result<(), String> {
        for (number, acknowledged) in self.kept.iter().enumerate() {
            let replay = journal.replay(&kept(number)).map_err(|error| error.to_string())?;
            if replay.last().get() < *acknowledged {
                let last = replay.last();
                return Err(format!("kept {number} ends at {last} and not at {acknowledged}"));
            }
            let other =
                |(seq, bytes): &&(hivekeep_store::Seq, Vec<u8>)| *bytes != small(number, seq.get());
            if let Some((seq, _)) = replay.records.iter().find(other) {
                return Err(format!("kept {number} has another record {seq}"));
            }
        }
        for (number, turn) in self.churned.iter().enumerate() {
            let replay = journal.replay(&churned(number)).map_err(|error| error.to_string())?;
            let found = turn_of(&replay)?;
            let good = match *turn {
                Turn::Before => true,
                Turn::Going(turn) => found <= turn,
                Turn::Done(turn) => found == turn,
            };
            if !good {
                return Err(format!("churned {number} is at turn {found}, not {turn:?}"));
            }
        }
        match journal.events().last().get() {
            last if last < self.events => Err(format!("{last} events and not {}", self.events)),
            _ => Ok(()),
        }
    }
}
