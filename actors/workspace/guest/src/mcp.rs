//! MCP server of a program in this machine, over its standard input and output: each message is carried to the daemon
//! by the port where the guest listens for it, and the answer back.
//!
//! ```text
//! program ── a line ──► this ── POST /mcp, with a number ──► 127.0.0.1:PORT ──► the daemon
//!         ◄── a line ──      ◄─────────── answer ───────────
//! ```
//! A request whose answer does not come whole is repeated with its number, so that a daemon which died finds what it
//! recorded of it. Messages are carried one after the other.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::de::IgnoredAny;

use crate::say;

/// Longest message, and longest answer.
const MOST_BYTES: u64 = 16 * 1024 * 1024;
/// Time for which a daemon that does not answer is asked again.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// First pause between two attempts, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Bytes of the name of this process, which no other has.
const NAME_BYTES: usize = 16;

/// Serves until its input ends: `mcp PORT`.
pub fn run(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let port = words.next().and_then(|word| word.to_str()?.parse().ok());
    let Some(port) = port else {
        say!("mcp: the port of the daemon is missing");
        return ExitCode::from(2);
    };
    match serve(port, &mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say!("mcp: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(port: u16, from: &mut impl BufRead, to: &mut impl Write) -> io::Result<()> {
    let mut name = [0; NAME_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut name)?;
    let name = name.iter().fold(String::new(), |name, byte| name + &format!("{byte:02x}"));
    for number in 0_u64.. {
        let mut line = Vec::new();
        if from.take(MOST_BYTES).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if !line.ends_with(b"\n") && line.len() as u64 == MOST_BYTES {
            return Err(io::Error::other(format!("a message has at most {MOST_BYTES} bytes")));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = patiently(port, &format!("{name}-{number}"), line.trim_ascii())?;
        if !answer.is_empty() {
            to.write_all(&answer)?;
            to.write_all(b"\n")?;
            to.flush()?;
        }
    }
    Ok(())
}

/// Asks until an answer comes whole.
fn patiently(port: u16, number: &str, message: &[u8]) -> io::Result<Vec<u8>> {
    let (until, mut pause) = (Instant::now() + PATIENCE, PAUSE);
    loop {
        match ask(port, number, message) {
            Err(_) if Instant::now() < until => sleep(pause),
            answered => return answered,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Asks once. An answer is one line of JSON, or nothing to a notification.
fn ask(port: u16, number: &str, message: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let length = message.len();
    // By HTTP/1.0 an answer ends with its connection.
    let head = format!(
        "POST /mcp HTTP/1.0\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         x-hivekeep-request: {number}\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(message)?;
    let mut answer = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut answer)?;
    let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n").ok_or_else(broken)?;
    let (head, body) = (&answer[..end], answer[end + 4..].trim_ascii());
    let status = head.split(|byte| *byte == b' ').nth(1);
    match status {
        Some(b"202") => Ok(Vec::new()),
        // An answer that was cut is not JSON.
        Some(b"200") if serde_json::from_slice::<IgnoredAny>(body).is_ok() => Ok(body.to_vec()),
        _ => Err(broken()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Answers the connections in turn, and gives what each asked.
    fn daemon(answers: &'static [&str]) -> (u16, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let serving = thread::spawn(move || {
            let answered = answers.iter().map(|answer| {
                let (stream, _) = listener.accept().expect("a connection");
                let mut reader = BufReader::new(&stream);
                let (mut head, mut length) = (String::new(), 0);
                while reader.read_line(&mut head).expect("a line") > 2 {
                    let last = head.lines().last().expect("one");
                    if let Some(value) = last.strip_prefix("content-length: ") {
                        length = value.parse().expect("a number");
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).expect("a body");
                (&stream).write_all(answer.as_bytes()).expect("written");
                let number = head.lines().find(|line| line.starts_with("x-hivekeep-request"));
                format!("{} {}", number.expect("one"), String::from_utf8_lossy(&body))
            });
            answered.collect()
        });
        (port, serving)
    }

    #[test]
    fn a_request_is_repeated_by_its_number_until_its_answer_is_whole() {
        let (port, serving) = daemon(&[
            "HTTP/1.1 200 OK\r\n\r\n{\"id\":1,",
            "",
            "HTTP/1.1 503 No\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nx: y\r\n\r\n{\"id\":1}",
            "HTTP/1.1 202 Accepted\r\n\r\n",
        ]);
        let mut said = Vec::new();
        serve(port, &mut &b"{\"id\":1}\n\n{\"method\":\"n\"}"[..], &mut said).expect("served");
        assert_eq!(said, b"{\"id\":1}\n");
        let asked = serving.join().expect("it ends");
        assert!(asked[..4].iter().all(|one| *one == asked[0] && one.ends_with("-0 {\"id\":1}")));
        assert!(asked[4].ends_with("-2 {\"method\":\"n\"}"), "{asked:?}");
    }
}
