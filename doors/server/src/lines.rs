//! Readers of newline-delimited messages of bounded length.

use std::io;

use hivekeep_kernel::User;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt},
    time::timeout_at,
};

use super::{
    incoming::{MessageRoom, ReservedRoom, SHORT_BYTES},
    line_splitter::{LineSplitter, SplitOutcome},
};

/// Outcome of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub enum LineOutcome<'l> {
    /// A line, without its end.
    Whole(&'l [u8]),
    /// A line above the limit. It was dropped; the next one can be read.
    TooLong,
    /// The peer is done. A last line without an end does not count.
    End,
}

/// Lines of an asynchronous reader. Cancelling a read loses nothing.
#[derive(Debug)]
pub struct LineReader<R> {
    reader: R,
    cutter: LineSplitter,
    /// Budget in which long lines reserve their bytes, and whose they are.
    incoming: Option<(MessageRoom, User)>,
    /// Reservation of the line that is being read, or was read last.
    reserved: Option<ReservedRoom>,
}

impl<R: AsyncBufRead + Unpin> LineReader<R> {
    /// Lines of at most `max_bytes`.
    pub fn new(reader: R, max_bytes: usize) -> Self {
        Self { reader, cutter: LineSplitter::new(max_bytes), incoming: None, reserved: None }
    }

    /// Takes the room for a user's long lines from this budget.
    pub fn within(self, incoming: MessageRoom, user: User) -> Self {
        Self { incoming: Some((incoming, user)), ..self }
    }

    /// The next line that is not empty.
    ///
    /// # Errors
    /// When the peer cannot be read, and `TimedOut` for a long line that does not end.
    pub async fn next(&mut self) -> io::Result<LineOutcome<'_>> {
        if self.cutter.is_whole() {
            self.reserved = None;
        }
        loop {
            let available = match &self.reserved {
                Some(reserved) => timeout_at(reserved.until, self.reader.fill_buf()).await??,
                None => self.reader.fill_buf().await?,
            };
            if available.is_empty() {
                return Ok(LineOutcome::End);
            }
            if self.reserved.is_none()
                && self.cutter.begun() + available.len() > SHORT_BYTES
                && let Some((incoming, user)) = &self.incoming
            {
                self.reserved = Some(incoming.reserve(*user).await);
            }
            let (taken, cut) = self.cutter.feed(available);
            self.reader.consume(taken);
            match cut {
                SplitOutcome::More => {}
                SplitOutcome::TooLong => {
                    self.reserved = None;
                    return Ok(LineOutcome::TooLong);
                }
                SplitOutcome::Line => return Ok(LineOutcome::Whole(self.cutter.line())),
            }
        }
    }

    /// True when a long line has reserved room for which others wait.
    pub fn has_reserved(&self) -> bool {
        self.reserved.is_some() && !self.cutter.is_whole()
    }

    /// Takes out the reservation of the line that [`LineReader::next`] has read last.
    pub fn take_reserved(&mut self) -> Option<ReservedRoom> {
        let mut reserved = self.reserved.take()?;
        reserved.shrink(self.cutter.line().len());
        Some(reserved)
    }

    /// The line that [`LineReader::next`] has read last, taken out.
    pub fn take(&mut self) -> Vec<u8> {
        self.cutter.take()
    }
}

/// Lines of a blocking reader.
#[derive(Debug)]
pub struct BlockingLines<R> {
    reader: R,
    cutter: LineSplitter,
}

impl<R: io::BufRead> BlockingLines<R> {
    /// Lines of at most `max_bytes`.
    pub fn new(reader: R, max_bytes: usize) -> Self {
        Self { reader, cutter: LineSplitter::new(max_bytes) }
    }

    /// The next line that is not empty.
    ///
    /// # Errors
    /// When the peer cannot be read.
    pub fn read(&mut self) -> io::Result<LineOutcome<'_>> {
        loop {
            let available = match self.reader.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() {
                return Ok(LineOutcome::End);
            }
            let (taken, cut) = self.cutter.feed(available);
            self.reader.consume(taken);
            match cut {
                SplitOutcome::More => {}
                SplitOutcome::TooLong => return Ok(LineOutcome::TooLong),
                SplitOutcome::Line => return Ok(LineOutcome::Whole(self.cutter.line())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::BufReader;

    async fn read(bytes: &[u8], max_bytes: usize, buffer: usize) -> Vec<String> {
        let mut lines = LineReader::new(BufReader::with_capacity(buffer, bytes), max_bytes);
        let mut seen = Vec::new();
        loop {
            match lines.next().await.expect("memory reads") {
                LineOutcome::Whole(line) => seen.push(String::from_utf8_lossy(line).into_owned()),
                LineOutcome::TooLong => seen.push("TOO LONG".to_owned()),
                LineOutcome::End => return seen,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_line_reserves_its_room_and_has_to_end_in_time() {
        use tokio::io::AsyncWriteExt;
        let incoming = MessageRoom::new(&hivekeep_config::Config::default());
        let (mut theirs, ours) = tokio::io::duplex(1 << 20);
        let mut lines =
            LineReader::new(BufReader::new(ours), 1 << 20).within(incoming, User::Nobody);
        theirs.write_all(b"short\n").await.expect("writes");
        assert_eq!(lines.next().await.expect("reads"), LineOutcome::Whole(b"short"));
        assert!(lines.take_reserved().is_none());
        let mut long = vec![b'x'; 100_000];
        long.push(b'\n');
        theirs.write_all(&long).await.expect("writes");
        assert!(
            matches!(lines.next().await.expect("reads"), LineOutcome::Whole(line) if line.len() == 100_000)
        );
        assert!(lines.take_reserved().is_some());
        // However long it waits for one that has not grown long yet.
        theirs.write_all(b"begun").await.expect("writes");
        let hour = tokio::time::timeout(std::time::Duration::from_secs(3600), lines.next()).await;
        assert!(hour.is_err());
        theirs.write_all(&long[..100_000]).await.expect("writes");
        let error = lines.next().await.expect_err("it does not end");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn lines_are_cut_where_they_end_however_they_arrive() {
        for buffer in [1, 2, 3, 64] {
            let seen = read(b"one\r\n\n\ntwo\nrest without end", 30, buffer).await;
            assert_eq!(seen, ["one", "two"], "buffer of {buffer}");
        }
    }

    #[tokio::test]
    async fn a_line_above_the_limit_is_dropped_and_the_next_one_read() {
        for buffer in [1, 7, 64] {
            let seen = read(b"12345\n123456\n1234\n", 5, buffer).await;
            assert_eq!(seen, ["12345", "TOO LONG", "1234"], "buffer of {buffer}");
        }
    }
}
