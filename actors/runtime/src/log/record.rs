//! Record codec: JSON, unless a kind says otherwise, whole or in pieces.

use std::fmt::{self, Debug, Write};

use serde::{Serialize, de::DeserializeOwned};

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
