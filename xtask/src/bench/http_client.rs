//! Load generator over HTTP/1.1: it writes prepared requests to kept-alive connections, and does as little
//! as possible with the answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Nothing measured here takes nearly as long.
const SILENCE: Duration = Duration::from_secs(60);

/// A kept-alive connection.
pub(super) struct HttpConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl HttpConnection {
    pub(super) fn open(address: &str) -> Result<Self> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
        Self::new(stream)
    }

    pub(super) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        Ok(Self { stream, buffer: vec![0; 64 * 1024], filled: 0 })
    }

    pub(super) fn send(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).context("the server takes no more requests")
    }

    /// Waits for an answer of status 200 with a `Content-Length`; where its body ends in the buffer.
    pub(super) fn receive(&mut self) -> Result<()> {
        self.whole().map(drop)
    }

    /// The body of an answer.
    pub(super) fn answer_to(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.send(request)?;
        let body = self.whole()?;
        Ok(self.buffer[body].to_vec())
    }

    fn whole(&mut self) -> Result<std::ops::Range<usize>> {
        self.filled = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[self.filled..])?;
            ensure!(read > 0, "the server closed the connection, or its answer is too long");
            self.filled += read;
            if let Some(body) = body_of(&self.buffer[..self.filled])? {
                return Ok(body);
            }
        }
    }
}

/// The body of a whole answer; `None` before all of it is there.
fn body_of(answer: &[u8]) -> Result<Option<std::ops::Range<usize>>> {
    let Some(head) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Ok(None);
    };
    ensure!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(answer));
    let lines = answer[..head].split(|byte| *byte == b'\n');
    let mut named = lines.filter_map(|line| {
        let (name, value) = line.split_at_checked(15)?;
        name.eq_ignore_ascii_case(b"content-length:").then(|| value.trim_ascii())
    });
    let length = named.next().context("an answer without a Content-Length")?;
    let length: usize = std::str::from_utf8(length)?.parse()?;
    let body = head + 4..head + 4 + length;
    ensure!(answer.len() <= body.end, "more than an answer");
    Ok((answer.len() == body.end).then_some(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_at_the_end_of_its_body() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx: y\r\n\r\n{}";
        assert_eq!(body_of(answer).expect("an answer"), Some(answer.len() - 2..answer.len()));
        assert_eq!(body_of(&answer[..answer.len() - 1]).expect("a part"), None);
        assert_eq!(body_of(&answer[..20]).expect("a part"), None);
        assert!(body_of(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").is_err());
    }
}
