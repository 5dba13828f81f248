//! Codec of operations and their outcomes for a link into a guest: postcard, bounded.

use serde::{Serialize, de::DeserializeOwned};

use crate::{FileError, FileErrorKind, MAX_EDIT_BYTES};

/// Size of an encoded operation and of an encoded outcome: the largest file that is edited, twice for the
/// text of an edit and its replacement, and what is around them.
pub const MAX_ENCODED_BYTES: u64 = 2 * MAX_EDIT_BYTES + 1024 * 1024;

/// Encodes an operation or what came of it.
///
/// # Errors
/// `TooLarge`.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, FileError> {
    let refuse = |what: String| FileError::new(FileErrorKind::TooLarge, what);
    let bytes = postcard::to_stdvec(value).map_err(|error| refuse(error.to_string()))?;
    if bytes.len() as u64 > MAX_ENCODED_BYTES {
        return Err(refuse(format!("the operation or its outcome has {} bytes", bytes.len())));
    }
    Ok(bytes)
}

/// Decodes what [`encode`] made. Takes no more memory than a small multiple of the bytes, whatever they say.
///
/// # Errors
/// A sentence, when the bytes are not exactly one value of the type.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}
