//! Payload codec: postcard, which is compact and allows new enum variants at the end.

use serde::{Serialize, de::DeserializeOwned};

/// Error: the payload is not a value of the expected type.
#[derive(Debug, thiserror::Error)]
#[error("undecodable payload: {0}")]
pub struct DecodeError(#[source] postcard::Error);

/// Error: the value does not fit one frame.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The encoded value is larger than [`crate::limits::MAX_PAYLOAD_BYTES`].
    #[error("message of {0} bytes exceeds the frame limit")]
    TooLarge(usize),
    /// The value cannot be represented (never for this crate's own types).
    #[error("unencodable message: {0}")]
    Unrepresentable(#[source] postcard::Error),
}

/// Encodes a payload.
///
/// # Errors
/// Fails when the result would exceed [`crate::limits::MAX_PAYLOAD_BYTES`].
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, EncodeError> {
    let bytes = postcard::to_stdvec(value).map_err(EncodeError::Unrepresentable)?;
    if bytes.len() > crate::limits::MAX_PAYLOAD_BYTES {
        return Err(EncodeError::TooLarge(bytes.len()));
    }
    Ok(bytes)
}

/// Decodes a payload; bytes left over are an error.
///
/// # Errors
/// Fails when the bytes are not exactly one value of `T`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(DecodeError(postcard::Error::DeserializeBadEncoding)),
        Err(error) => Err(DecodeError(error)),
    }
}
