//! Streams of logs: the codec of records, JSON unless a kind says otherwise, whole or in pieces; entities as
//! their streams add up to them; and the registry of open logs of a kind, which outlives the actors that
//! decide on them.
//!
//! A log goes on writing when its actor ends: what was decided will be on the disk. Whoever read the
//! stream from the journal meanwhile would miss that, so the next incarnation of the actor goes on
//! with the same log.

use std::{
    collections::HashMap,
    fmt::{self, Debug, Write},
    marker::PhantomData,
    sync::Mutex,
};

use futures::future::join_all;
use hivekeep_kernel::lock;
use hivekeep_store::{Journal, Replay, Seq, StreamId};
use serde::{Serialize, de::DeserializeOwned};

use super::{Log, LogError, Sourced, follow};

/// Record of a log. Every serde type is one, as JSON.
pub trait LogRecord: Clone + Debug + Send + 'static {
    /// Encodes the record.
    ///
    /// # Errors
    /// Reason.
    fn encode(&self) -> Result<Vec<u8>, String>;

    /// Decodes a record.
    ///
    /// # Errors
    /// Reason, for a record that makes no sense.
    fn decode(bytes: &[u8]) -> Result<Self, String>;

    /// Name of the variant, for errors: contents never get into a log file.
    fn kind(&self) -> String {
        let mut name = Name(String::new());
        // Cut short at the first character that cannot be part of a name.
        let _cut_short = write!(name, "{self:?}");
        name.0
    }
}

impl<R: Serialize + DeserializeOwned + Clone + Debug + Send + 'static> LogRecord for R {
    fn encode(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|error| error.to_string())
    }

    fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

/// Writer that keeps the first word.
struct Name(String);

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
        self.0.push_str(&text[..end.unwrap_or(text.len())]);
        if end.is_some() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Mark of a piece that others follow.
const CONTINUED: u8 = b'+';
/// Mark of the last piece.
const LAST: u8 = b'.';

/// Splits a record's bytes into pieces, each after its mark.
pub(super) fn pieces(whole: &[u8], piece_bytes: usize) -> Vec<Vec<u8>> {
    let count = whole.len().div_ceil(piece_bytes);
    let mark = |at| if at + 1 == count { LAST } else { CONTINUED };
    let pieces = whole.chunks(piece_bytes).enumerate();
    pieces.map(|(at, piece)| [&[mark(at)], piece].concat()).collect()
}

/// Joins records from their pieces.
///
/// # Errors
/// Reason, for a piece without a mark and for a record without its last piece: all pieces of a
/// record are written in one commit.
pub(super) fn whole(pieces: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, String> {
    let (mut records, mut whole) = (Vec::new(), Vec::new());
    for piece in pieces {
        match piece.split_first() {
            Some((&CONTINUED, piece)) => whole.extend_from_slice(piece),
            Some((&LAST, piece)) => {
                whole.extend_from_slice(piece);
                records.push(std::mem::take(&mut whole));
            }
            _ => return Err("a piece has no mark".to_owned()),
        }
    }
    if whole.is_empty() { Ok(records) } else { Err("a record is cut short".to_owned()) }
}

/// Entity as one read of its stream found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded<S> {
    /// State that its records add up to.
    pub state: S,
    /// Position of the last record in the state.
    pub upto: Seq,
    /// Number of records that no snapshot covers.
    pub unfolded: usize,
}

/// All streams of a kind.
#[derive(Debug)]
pub struct Streams<S> {
    /// Streams that make sense, by name.
    pub loaded: Vec<(StreamId, Loaded<S>)>,
    /// Streams that do not begin with a first record, from which no entity can be made.
    pub stray: Vec<StreamId>,
}

/// Reads one entity off the async threads, after everything that was ever queued for it: an append
/// whose writer did not wait may still be on its way.
///
/// # Errors
/// See [`load`].
pub async fn read<S: Sourced>(
    journal: &Journal,
    stream: &StreamId,
) -> Result<Option<Loaded<S>>, LogError> {
    let (from, of) = (journal.clone(), stream.clone());
    behind_all(journal, stream, move || load(&from, &of)).await
}

/// Reads all entities of a kind, as [`read`] does.
///
/// # Errors
/// See [`load`], for the first that cannot be read.
pub async fn read_all<S: Sourced>(journal: &Journal) -> Result<Streams<S>, LogError> {
    let from = journal.clone();
    behind_all(journal, &every::<S>(), move || load_all(&from)).await
}

/// Records of one entity that is never folded, in order, each to be decoded where it is wanted.
#[derive(Debug)]
pub struct EncodedRecords<S> {
    stream: StreamId,
    records: Vec<Vec<u8>>,
    of: PhantomData<fn() -> S>,
}

impl<S: Sourced> EncodedRecords<S> {
    /// Number of records.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Decodes the record at a place, from 0.
    ///
    /// # Errors
    /// When it makes no sense, or there is none.
    pub fn decode(&self, at: usize) -> Result<S::Record, LogError> {
        let bytes = self.records.get(at).ok_or_else(|| "there is no such record".to_owned());
        let record = bytes.and_then(|bytes| S::Record::decode(bytes));
        record.map_err(|what| LogError::Unreadable { stream: self.stream.clone(), what })
    }
}

/// Reads the records of one entity that is never folded, as [`read`] does.
///
/// # Errors
/// When its stream cannot be read.
pub async fn read_encoded<S: Sourced>(
    journal: &Journal,
    stream: &StreamId,
) -> Result<EncodedRecords<S>, LogError> {
    let (from, of) = (journal.clone(), stream.clone());
    let load = move || {
        let failed = |source| LogError::Journal { stream: of.clone(), source };
        let replay = from.replay(&of).map_err(failed)?;
        encoded::<S>(replay).map_err(|what| LogError::Unreadable { stream: of.clone(), what })
    };
    let records = behind_all(journal, stream, load).await?;
    Ok(EncodedRecords { stream: stream.clone(), records, of: PhantomData })
}

/// Reads the records of one entity that is never folded, in order, as [`read`] does.
///
/// # Errors
/// When its stream cannot be read.
pub async fn read_records<S: Sourced>(
    journal: &Journal,
    stream: &StreamId,
) -> Result<Vec<S::Record>, LogError> {
    let encoded = read_encoded::<S>(journal, stream).await?;
    (0..encoded.len()).map(|at| encoded.decode(at)).collect()
}

/// Reads records of one entity that is never folded, in order, from behind a position on, as [`read`] does: those of
/// the next `pieces`, or the next one where it has more. Each with its position.
///
/// # Errors
/// When its stream cannot be read.
pub async fn read_behind<S: Sourced>(
    journal: &Journal,
    stream: &StreamId,
    after: Seq,
    pieces: usize,
) -> Result<Vec<(Seq, S::Record)>, LogError> {
    let (from, of) = (journal.clone(), stream.clone());
    let load = move || {
        let failed = |source| LogError::Journal { stream: of.clone(), source };
        let mut most = pieces.max(1);
        loop {
            let read = from.replay_behind(&of, after, most).map_err(failed)?;
            let (all, records) = (read.len() < most, whole_of::<S>(read));
            let unreadable = |what| LogError::Unreadable { stream: of.clone(), what };
            let records = records.map_err(unreadable)?;
            if all || !records.is_empty() {
                return Ok(records);
            }
            most = most.saturating_mul(2);
        }
    };
    behind_all(journal, stream, load).await
}

/// Records whose last pieces are there, each with the position of that.
fn whole_of<S: Sourced>(read: Vec<(Seq, Vec<u8>)>) -> Result<Vec<(Seq, S::Record)>, String> {
    let (mut ends, mut records): (Vec<Seq>, Vec<Vec<u8>>) = read.into_iter().unzip();
    if S::PIECE_BYTES.is_some() {
        let is_last = |piece: &Vec<u8>| piece.first() == Some(&LAST);
        records.truncate(records.iter().rposition(is_last).map_or(0, |at| at + 1));
        let mut lasts = records.iter().map(is_last);
        ends.retain(|_| lasts.next().unwrap_or(false));
        records = whole(records)?;
    }
    let decoded = records.iter().map(|bytes| S::Record::decode(bytes));
    ends.into_iter().zip(decoded).map(|(seq, record)| Ok((seq, record?))).collect()
}

/// Records behind the snapshot, whole.
fn encoded<S: Sourced>(replay: Replay) -> Result<Vec<Vec<u8>>, String> {
    let records = replay.records.into_iter().map(|(_, bytes)| bytes).collect();
    if S::PIECE_BYTES.is_some() { whole(records) } else { Ok(records) }
}

/// Decodes the records behind the snapshot.
fn decoded<S: Sourced>(replay: Replay) -> Result<Vec<S::Record>, String> {
    encoded::<S>(replay)?.iter().map(|bytes| S::Record::decode(bytes)).collect()
}

async fn behind_all<T: Send + 'static>(
    journal: &Journal,
    stream: &StreamId,
    load: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    let stream = || stream.clone();
    journal.settled().await.map_err(|source| LogError::Journal { stream: stream(), source })?;
    let loaded = tokio::task::spawn_blocking(load).await;
    loaded.map_err(|panic| LogError::Defect { stream: stream(), what: panic.to_string() })?
}

/// Placeholder stream for errors that concern all streams of a kind.
fn every<S: Sourced>() -> StreamId {
    StreamId::new(S::KIND, "all").expect("a kind is a name")
}

/// Reads one entity; `None` when there is no record, or no first one. Blocks.
///
/// # Errors
/// Fails when its stream cannot be read, or a record does not follow those before it.
pub fn load<S: Sourced>(
    journal: &Journal,
    stream: &StreamId,
) -> Result<Option<Loaded<S>>, LogError> {
    let unreadable = |what: String| LogError::Unreadable { stream: stream.clone(), what };
    let failed = |source| LogError::Journal { stream: stream.clone(), source };
    let replay = journal.replay(stream).map_err(failed)?;
    let (upto, unfolded) = (replay.last(), replay.records.len());
    let mut state = match &replay.snapshot {
        Some((_, bytes)) => Some(S::unfold(bytes).map_err(unreadable)?),
        None => None,
    };
    let mut stray = false;
    for record in decoded::<S>(replay).map_err(unreadable)? {
        match follow(&mut state, record) {
            Ok(()) if !stray => {}
            // Nothing of the stream was acknowledged, unless something begins later in it.
            Err(_) if state.is_none() => stray = true,
            Ok(()) => return Err(unreadable("its first record does not begin it".to_owned())),
            Err(record) => return Err(unreadable(format!("`{}` does not follow", record.kind()))),
        }
    }
    Ok(state.map(|state| Loaded { state, upto, unfolded }))
}

/// Reads one entity with everything that was acknowledged before; `None` as [`load`].
///
/// # Errors
/// See [`load`].
pub async fn read_one<S: Sourced>(
    journal: &Journal,
    stream: &StreamId,
) -> Result<Option<Loaded<S>>, LogError> {
    let (from, of) = (journal.clone(), stream.clone());
    behind_all(journal, stream, move || load::<S>(&from, &of)).await
}

/// Reads all entities of a kind. Blocks.
///
/// # Errors
/// See [`load`], for the first that cannot be read.
pub fn load_all<S: Sourced>(journal: &Journal) -> Result<Streams<S>, LogError> {
    let prefix = format!("{}/", S::KIND);
    let failed = |source| LogError::Journal { stream: every::<S>(), source };
    let mut all = Streams { loaded: Vec::new(), stray: Vec::new() };
    for stream in journal.streams(&prefix).map_err(failed)? {
        match load(journal, &stream)? {
            Some(loaded) => all.loaded.push((stream, loaded)),
            None => all.stray.push(stream),
        }
    }
    Ok(all)
}

/// The open logs of a kind.
pub struct LogSet<S: Sourced> {
    journal: Journal,
    open: Mutex<HashMap<StreamId, Log<S>>>,
}

impl<S: Sourced> LogSet<S> {
    /// Makes a set without open logs.
    pub fn new(journal: Journal) -> Self {
        Self { journal, open: Mutex::default() }
    }

    /// The log of a new entity, of which nothing is in the journal.
    pub fn begin(&self, stream: StreamId) -> Log<S> {
        self.keep(Log::of(self.journal.clone(), stream, None))
    }

    /// The log of an entity, with everything that was decided on the disk: the one that is open, or
    /// one that is read from the journal.
    ///
    /// # Errors
    /// When it cannot be read, or too much waits to be written.
    pub async fn open(&self, stream: StreamId) -> Result<Log<S>, LogError> {
        let open = lock(&self.open).get(&stream).cloned();
        if let Some(log) = open {
            match log.settled().await {
                Ok(()) => return Ok(log),
                Err(error) if log.ended().is_none() => return Err(error),
                // The log ended and is read anew.
                Err(_ended) => {}
            }
        }
        Ok(self.keep(Log::open(self.journal.clone(), stream).await?))
    }

    /// Waits until everything that was decided on any of them is durable, as far as it will be.
    pub async fn settled(&self) {
        let open: Vec<_> = lock(&self.open).values().cloned().collect();
        // A log that ended is read anew by whoever opens it.
        drop(join_all(open.iter().map(Log::settled)).await);
    }

    /// Removes all records of an entity, readable or not, as [`Log::forget`] does.
    ///
    /// # Errors
    /// When they could not be removed.
    pub async fn forget(&self, stream: &StreamId) -> Result<(), LogError> {
        let open = lock(&self.open).remove(stream);
        let log = open.filter(|log| log.ended().is_none());
        log.unwrap_or_else(|| Log::of(self.journal.clone(), stream.clone(), None)).forget().await
    }

    fn keep(&self, log: Log<S>) -> Log<S> {
        lock(&self.open).insert(log.0.stream.clone(), log.clone());
        log
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_in_pieces_are_read_whole(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            piece_bytes in 1_usize..20,
        ) {
            let written: Vec<_> = records.iter().flat_map(|r| pieces(r, piece_bytes)).collect();
            prop_assert!(written.iter().all(|piece| piece.len() <= piece_bytes + 1));
            prop_assert_eq!(whole(written), Ok(records));
        }
    }

    #[test]
    fn pieces_that_are_cut_short_are_refused() {
        let mut written = pieces(b"abcdef", 2);
        written.pop();
        assert!(whole(written).is_err());
        assert!(whole(vec![b"?ab".to_vec()]).is_err());
        assert!(whole(vec![Vec::new()]).is_err());
    }

    #[test]
    fn a_kind_has_nothing_of_the_contents() {
        #[derive(Debug, Clone, Serialize, serde::Deserialize)]
        enum Record {
            SetVariable { secret: String },
            Gone(String),
        }
        let secret = "s3cret".to_owned();
        assert_eq!(Record::SetVariable { secret: secret.clone() }.kind(), "SetVariable");
        assert_eq!(Record::Gone(secret).kind(), "Gone");
    }
}
