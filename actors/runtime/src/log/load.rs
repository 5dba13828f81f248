//! Stream loader: rebuilds entities from their streams.

use hivekeep_store::{Journal, Seq, StreamId};

use super::{LogError, LogRecord, Sourced, follow, record};

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
    let mut records = replay.records.into_iter().map(|(_, bytes)| bytes).collect();
    if S::PIECE_BYTES.is_some() {
        records = record::whole(records).map_err(unreadable)?;
    }
    let records: Result<Vec<_>, _> = records.iter().map(|bytes| S::Record::decode(bytes)).collect();
    let mut stray = false;
    for record in records.map_err(unreadable)? {
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
