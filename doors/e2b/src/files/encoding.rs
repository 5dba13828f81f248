//! Content encodings of files: as they are, or by gzip.

use std::io::Write as _;

use axum::{
    body::{Body, BodyDataStream},
    http::{HeaderMap, header},
};
use bytes::Bytes;
use flate2::{Compression, write::GzDecoder, write::GzEncoder};
use futures::StreamExt as _;

use crate::error::E2bError;

/// Bytes that are decompressed at a time: at most a thousand times as many come of them.
const SLICE_BYTES: usize = 1024;

/// Whether an answer shall be compressed. A client that takes it uncompressed gets it so.
///
/// # Errors
/// When the client takes neither.
pub(super) fn wants_gzip(headers: &HeaderMap) -> Result<bool, ()> {
    let Some(text) = headers.get(header::ACCEPT_ENCODING).and_then(|it| it.to_str().ok()) else {
        return Ok(false);
    };
    let weight = |name: &str| {
        let one = |part: &str| {
            let (coding, rest) = part.split_once(';').unwrap_or((part, ""));
            let weight = rest.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
            (coding.trim() == name).then(|| weight.unwrap_or(0.0))
        };
        text.split(',').find_map(one)
    };
    let any = weight("*");
    let identity = weight("identity").or(any).unwrap_or(1.0);
    let gzip = weight("gzip").or(any).unwrap_or(0.0);
    match (identity > 0.0, gzip > 0.0) {
        // A client that names gzip alone asks for it.
        (true, true) => Ok(weight("identity").is_none() && text.trim() == "gzip"),
        (true, false) => Ok(false),
        (false, true) => Ok(true),
        (false, false) => Err(()),
    }
}

/// Compressor of a stream.
pub(super) struct Compressor(GzEncoder<Vec<u8>>);

impl Compressor {
    pub(super) fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Compresses a piece; returns the bytes of the stream that are ready.
    pub(super) fn push(&mut self, piece: &[u8]) -> Bytes {
        // Writing to a vector does not fail.
        let _written = self.0.write_all(piece);
        std::mem::take(self.0.get_mut()).into()
    }

    pub(super) fn finish(self) -> Bytes {
        self.0.finish().unwrap_or_default().into()
    }
}

/// Decoder of a stream that may be compressed.
pub(super) enum Decoder {
    Plain,
    Gzip(Box<GzDecoder<Vec<u8>>>),
}

impl Decoder {
    /// Decoder for the encoding that a request's header names.
    ///
    /// # Errors
    /// For another encoding.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, E2bError> {
        match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()) {
            None | Some(b"identity") => Ok(Self::Plain),
            Some(b"gzip") => Ok(Self::Gzip(Box::new(GzDecoder::new(Vec::new())))),
            Some(_) => Err(E2bError::unsupported("a content encoding other than gzip")),
        }
    }

    /// Takes the beginning of a piece and decodes it: as much as makes a bounded part.
    ///
    /// # Errors
    /// For what is not gzip.
    pub(super) fn take(&mut self, piece: &mut Bytes) -> Result<Bytes, E2bError> {
        let Self::Gzip(decoder) = self else { return Ok(std::mem::take(piece)) };
        let slice = piece.split_to(piece.len().min(SLICE_BYTES));
        decoder.write_all(&slice).map_err(|error| broken(&error))?;
        Ok(std::mem::take(decoder.get_mut()).into())
    }

    /// Decoded rest of the stream, once all input has come.
    ///
    /// # Errors
    /// For a stream that is cut short.
    pub(super) fn finish(self) -> Result<Bytes, E2bError> {
        match self {
            Self::Plain => Ok(Bytes::new()),
            Self::Gzip(decoder) => {
                decoder.finish().map(Bytes::from).map_err(|error| broken(&error))
            }
        }
    }
}

/// A body that is read without its encoding.
pub(super) struct DecodedBody {
    pieces: BodyDataStream,
    /// `None` at the end.
    decoder: Option<Decoder>,
    /// Bytes that have come and are not decoded yet.
    piece: Bytes,
}

impl DecodedBody {
    pub(super) fn new(body: Body, decoder: Decoder) -> Self {
        let pieces = body.into_data_stream();
        Self { pieces, decoder: Some(decoder), piece: Bytes::new() }
    }

    /// The next part of the body, never an empty one; `None` at the end.
    ///
    /// # Errors
    /// For a body that breaks off or is not what it says.
    pub(super) async fn part(&mut self) -> Result<Option<Bytes>, E2bError> {
        while let Some(decoder) = &mut self.decoder {
            let part = if !self.piece.is_empty() {
                decoder.take(&mut self.piece)?
            } else if let Some(piece) = self.pieces.next().await {
                self.piece = piece.map_err(|error| E2bError::invalid(error.to_string()))?;
                continue;
            } else {
                self.decoder.take().map_or(Ok(Bytes::new()), Decoder::finish)?
            };
            if !part.is_empty() {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }
}

fn broken(error: &std::io::Error) -> E2bError {
    E2bError::invalid(format!("the body is not valid gzip: {error}"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn answers_are_compressed_for_those_who_ask_for_it() {
        let wants = |value| wants_gzip(&headers(header::ACCEPT_ENCODING, value));
        assert_eq!(wants_gzip(&HeaderMap::new()), Ok(false));
        assert_eq!(wants("gzip"), Ok(true));
        assert_eq!(wants("gzip, deflate, br"), Ok(false), "who takes anything gets it as it is");
        assert_eq!(wants("gzip, identity;q=0"), Ok(true));
        assert_eq!(wants("br, identity"), Ok(false));
        assert_eq!(wants("br, *;q=0"), Err(()));
        assert_eq!(wants("identity;q=0"), Err(()));
    }

    #[test]
    fn what_is_compressed_is_read_again_however_it_is_cut() {
        let text = "hivekeep ".repeat(50_000);
        let mut compressor = Compressor::new();
        let mut packed = compressor.push(text.as_bytes()).to_vec();
        packed.extend(compressor.finish());
        for step in [1, 1000, packed.len()] {
            let mut decoder =
                Decoder::of(&headers(header::CONTENT_ENCODING, "gzip")).expect("known");
            let mut read = Vec::new();
            for piece in packed.chunks(step) {
                let mut piece = Bytes::copy_from_slice(piece);
                while !piece.is_empty() {
                    read.extend_from_slice(&decoder.take(&mut piece).expect("gzip"));
                }
            }
            read.extend(decoder.finish().expect("whole"));
            assert!(read == text.as_bytes(), "{step}");
        }
    }

    #[test]
    fn what_is_broken_is_refused() {
        let gzip = headers(header::CONTENT_ENCODING, "gzip");
        let mut decoder = Decoder::of(&gzip).expect("known");
        assert!(decoder.take(&mut Bytes::from_static(b"no gzip at all")).is_err());
        assert!(Decoder::of(&headers(header::CONTENT_ENCODING, "br")).is_err());
        let mut compressor = Compressor::new();
        let _ = compressor.push(b"x");
        let packed = compressor.finish();
        let mut decoder = Decoder::of(&gzip).expect("known");
        decoder.take(&mut packed.slice(..packed.len() - 4)).expect("so far");
        assert!(decoder.finish().is_err(), "cut short");
    }
}
