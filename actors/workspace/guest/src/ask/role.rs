//! The `askpass` role: git starts it with a prompt, or, as its keeper of credentials, with
//! what became of one.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use super::SOCKET_VARIABLE;
use super::server::{MAX_QUESTION_BYTES, REJECTED};

/// The daemon answers at once or not at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// Prints the answer, if there is one.
pub fn run(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let prompt = words.next().unwrap_or_default();
    let question = match prompt.as_encoded_bytes() {
        // Nothing is kept, so there is nothing to look up or to keep.
        b"get" | b"store" => return ExitCode::SUCCESS,
        b"erase" => REJECTED,
        prompt => prompt,
    };
    match ask(question) {
        Ok(answer) if answer.is_empty() && question != REJECTED => ExitCode::FAILURE,
        Ok(answer) => match io::stdout().write_all(&answer) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            crate::say!("askpass: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ask(question: &[u8]) -> io::Result<Vec<u8>> {
    let socket = std::env::var_os(SOCKET_VARIABLE).ok_or(io::ErrorKind::NotFound)?;
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&question[..question.len().min(MAX_QUESTION_BYTES)])?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
    Ok(answer)
}
