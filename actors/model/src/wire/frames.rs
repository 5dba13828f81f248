//! Framing of streamed answers: server-sent events, or lines of JSON.

use bytes::BytesMut;
use tokio_util::codec::{Decoder, LinesCodec};

use crate::failure::WireFailure;

/// Longest line.
const LINE_BYTES: usize = 1024 * 1024;
/// Most data of one event.
const EVENT_BYTES: usize = 2 * 1024 * 1024;

/// How an answer is cut into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events; a frame is the data of one.
    Events,
    /// A frame is a line.
    Lines,
}

/// Splitter of a stream of bytes. Holds one frame at most.
pub(crate) struct Splitter {
    framing: Framing,
    lines: LinesCodec,
    bytes: BytesMut,
    data: String,
}

impl Splitter {
    pub(crate) fn new(framing: Framing) -> Self {
        Self {
            framing,
            lines: LinesCodec::new_with_max_length(LINE_BYTES),
            bytes: BytesMut::new(),
            data: String::new(),
        }
    }

    /// Takes more bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// For a line or an event that is too long, or no UTF-8.
    pub(crate) fn next(&mut self) -> Result<Option<String>, WireFailure> {
        while let Some(line) = self.line()? {
            match self.framing {
                Framing::Lines if !line.trim().is_empty() => return Ok(Some(line)),
                Framing::Lines => {}
                Framing::Events if line.is_empty() && !self.data.is_empty() => {
                    return Ok(Some(std::mem::take(&mut self.data)));
                }
                Framing::Events => self.field(&line)?,
            }
        }
        Ok(None)
    }

    /// The frame that the end of the stream ends.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) fn last(&mut self) -> Result<Option<String>, WireFailure> {
        let line = self.lines.decode_eof(&mut self.bytes).map_err(|error| wrong(&error))?;
        match (self.framing, line) {
            (Framing::Lines, line) => Ok(line.filter(|line| !line.trim().is_empty())),
            (Framing::Events, line) => {
                line.map_or(Ok(()), |line| self.field(&line))?;
                Ok(Some(std::mem::take(&mut self.data)).filter(|data| !data.is_empty()))
            }
        }
    }

    fn line(&mut self) -> Result<Option<String>, WireFailure> {
        self.lines.decode(&mut self.bytes).map_err(|error| wrong(&error))
    }

    /// A line of an event. Only its data counts.
    fn field(&mut self, line: &str) -> Result<(), WireFailure> {
        let Some(data) = line.strip_prefix("data:") else { return Ok(()) };
        if self.data.len() + data.len() > EVENT_BYTES {
            return Err(WireFailure::too_large(format!(
                "an event of the answer is larger than {EVENT_BYTES} bytes"
            )));
        }
        if !self.data.is_empty() {
            self.data.push('\n');
        }
        self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
        Ok(())
    }
}

fn wrong(error: &tokio_util::codec::LinesCodecError) -> WireFailure {
    match error {
        tokio_util::codec::LinesCodecError::MaxLineLengthExceeded => WireFailure::too_large(
            format!("a line of the answer is longer than {LINE_BYTES} bytes"),
        ),
        tokio_util::codec::LinesCodecError::Io(error) => {
            WireFailure::broken(format!("the answer is not valid: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(framing: Framing, pieces: &[&[u8]]) -> Vec<String> {
        let mut splitter = Splitter::new(framing);
        let mut all = Vec::new();
        for piece in pieces {
            splitter.push(piece);
            while let Some(frame) = splitter.next().expect("valid") {
                all.push(frame);
            }
        }
        all.extend(splitter.last().expect("valid"));
        all
    }

    proptest! {
        #[test]
        fn frames_are_the_same_however_the_bytes_come(
            texts in prop::collection::vec("[a-zé ]{1,12}", 1..6),
            cut in 0_usize..200,
            crlf: bool,
        ) {
            let end = if crlf { "\r\n" } else { "\n" };
            let events: String = texts
                .iter()
                .map(|text| format!(": comment{end}event: x{end}data: {text}{end}{end}"))
                .collect();
            let cut = cut.min(events.len());
            let pieces = [&events.as_bytes()[..cut], &events.as_bytes()[cut..]];
            prop_assert_eq!(frames(Framing::Events, &pieces), texts.clone());
            let lines = texts.iter().map(|text| format!("x{text}{end}{end}")).collect::<String>();
            let cut = cut.min(lines.len());
            let pieces = [&lines.as_bytes()[..cut], &lines.as_bytes()[cut..]];
            let wanted: Vec<_> = texts.iter().map(|text| format!("x{text}")).collect();
            prop_assert_eq!(frames(Framing::Lines, &pieces), wanted);
        }
    }

    #[test]
    fn what_has_no_end_is_refused() {
        let mut splitter = Splitter::new(Framing::Events);
        splitter.push(&vec![b'x'; LINE_BYTES + 1]);
        assert!(splitter.next().is_err());
        let mut splitter = Splitter::new(Framing::Events);
        let line = format!("data: {}\n", "x".repeat(LINE_BYTES / 2));
        let fails = (0..8).any(|_| {
            splitter.push(line.as_bytes());
            splitter.next().is_err()
        });
        assert!(fails, "an event of many lines is bounded");
    }

    #[test]
    fn data_of_many_lines_is_one_frame() {
        assert_eq!(frames(Framing::Events, &[b"data: a\ndata:b\n\ndata: c"]), ["a\nb", "c"]);
    }
}
