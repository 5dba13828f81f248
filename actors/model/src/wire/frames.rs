//! Framing of streamed answers: server-sent events, or lines of JSON.

use bytes::BytesMut;
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, Decoder};

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
    lines: AnyDelimiterCodec,
    bytes: BytesMut,
    data: String,
    /// Lines that belong to no event, from the beginning on: the answer may not be a stream.
    stray: String,
}

impl Splitter {
    pub(crate) fn new(framing: Framing) -> Self {
        Self {
            framing,
            lines: AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), Vec::new(), LINE_BYTES),
            bytes: BytesMut::new(),
            data: String::new(),
            stray: String::new(),
        }
    }

    /// Takes more bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// For a line or an event that is too long.
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

    /// The last frame, completed by the end of the stream.
    ///
    /// # Errors
    /// Same as [`Self::next`].
    pub(crate) fn last(&mut self) -> Result<Option<String>, WireFailure> {
        let line = self.lines.decode_eof(&mut self.bytes).map_err(|error| wrong(&error))?;
        let line = line.map(|line| text(&line));
        match (self.framing, line) {
            (Framing::Lines, line) => Ok(line.filter(|line| !line.trim().is_empty())),
            (Framing::Events, line) => {
                line.map_or(Ok(()), |line| self.field(&line))?;
                Ok(Some(std::mem::take(&mut self.data)).filter(|data| !data.is_empty()))
            }
        }
    }

    /// Text that came in place of events, once the stream has ended.
    pub(crate) fn stray(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.stray)).filter(|text| !text.trim().is_empty())
    }

    fn line(&mut self) -> Result<Option<String>, WireFailure> {
        let line = self.lines.decode(&mut self.bytes).map_err(|error| wrong(&error))?;
        Ok(line.map(|line| text(&line)))
    }

    /// A line of an event. Only its data counts.
    fn field(&mut self, line: &str) -> Result<(), WireFailure> {
        let Some(data) = line.strip_prefix("data:") else {
            let known = ["", "data", "event", "id", "retry"];
            let of_event = known.contains(&line.split(':').next().unwrap_or_default());
            if !of_event && self.stray.len() + line.len() <= EVENT_BYTES {
                self.stray.push_str(line);
                self.stray.push('\n');
            }
            return Ok(());
        };
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

/// A line's text, in which bytes that are not UTF-8 are replaced.
fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

fn wrong(error: &AnyDelimiterCodecError) -> WireFailure {
    match error {
        AnyDelimiterCodecError::MaxChunkLengthExceeded => WireFailure::too_large(format!(
            "a line of the answer is longer than {LINE_BYTES} bytes"
        )),
        AnyDelimiterCodecError::Io(error) => {
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
        assert_eq!(
            frames(Framing::Lines, &[b"a\xff\r", b"\nb\xf0\x9f"]),
            ["a\u{fffd}", "b\u{fffd}"]
        );
    }

    #[test]
    fn what_is_no_event_is_kept() {
        let mut splitter = Splitter::new(Framing::Events);
        splitter.push(b": a\nevent: b\nid: c\n\n{\n  \"error\": \"d\"\n}");
        assert_eq!(splitter.next().expect("valid"), None);
        assert_eq!(splitter.last().expect("valid"), None);
        assert_eq!(splitter.stray().as_deref(), Some("{\n  \"error\": \"d\"\n}\n"));
    }
}
