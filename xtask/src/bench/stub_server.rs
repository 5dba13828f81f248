//! Stub server over HTTP/1.1 that answers each request at once: the other end of a client that is measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::{Context, Result, ensure};

/// Serves on a port of its own as long as the process lives; its address. `answer` is given the first line of
/// each request, and returns a whole response.
pub(super) fn serve(
    answer: impl Fn(&str) -> Vec<u8> + Clone + Send + Sync + 'static,
) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a port")?;
    let address = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            // A connection that ends is no failure of the server.
            std::thread::spawn(move || connection(stream, answer).is_ok());
        }
    });
    Ok(address)
}

fn connection(mut stream: TcpStream, answer: impl Fn(&str) -> Vec<u8>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let first = line(&mut reader)?;
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = line(&mut reader)?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            chunked |= line.starts_with("transfer-encoding:") && line.ends_with("chunked");
        }
        reader.read_exact(&mut vec![0; length])?;
        while chunked {
            let length = usize::from_str_radix(&line(&mut reader)?, 16)?;
            // With the end of its line.
            reader.read_exact(&mut vec![0; length + 2])?;
            chunked = length > 0;
        }
        stream.write_all(&answer(&first))?;
    }
}

fn line(reader: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    ensure!(reader.read_line(&mut line)? > 0, "the client left");
    Ok(line.trim_end().to_owned())
}
