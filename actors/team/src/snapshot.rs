//! Snapshots of members' streams: records, each after its length as four bytes, the lowest first.

use hivekeep_runtime::log::LogRecord;

/// The records as a snapshot; `None` when one cannot be written.
pub(crate) fn of<R: LogRecord>(records: impl Iterator<Item = R>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for record in records {
        let record = record.encode().ok()?;
        bytes.extend_from_slice(&u32::try_from(record.len()).ok()?.to_le_bytes());
        bytes.extend_from_slice(&record);
    }
    Some(bytes)
}

/// A snapshot's records.
///
/// # Errors
/// In words, when it makes no sense.
pub(crate) fn records<R: LogRecord>(mut bytes: &[u8]) -> Result<Vec<R>, String> {
    let mut records = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let (record, rest) = rest.split_at_checked(length).ok_or("a record is cut short")?;
        records.push(R::decode(record)?);
        bytes = rest;
    }
    if bytes.is_empty() { Ok(records) } else { Err("a record is cut short".to_owned()) }
}
