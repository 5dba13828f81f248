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
        let mut first = String::new();
        ensure!(reader.read_line(&mut first)? > 0, "the client left");
        let mut length = 0;
        loop {
            let mut line = String::new();
            ensure!(reader.read_line(&mut line)? > 0, "the client left");
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        reader.read_exact(&mut vec![0; length])?;
        stream.write_all(&answer(&first))?;
    }
}
