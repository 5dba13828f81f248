//! Finding the programs that machines are made of.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Error;

/// Limit of the bytes kept of a program's output.
const KEPT_BYTES: u64 = 64 * 1024;

/// Resolves a configured program to an absolute path; a bare name is looked up in `PATH`.
pub(super) fn find(program: &Path, remedy: &str) -> Result<PathBuf, Error> {
    let is_program = |path: &Path| {
        rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
    };
    let found = if program.components().count() > 1 {
        is_program(program).then(|| program.to_owned())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| is_program(path))
    };
    found.ok_or_else(|| Error::ToolMissing {
        program: program.display().to_string(),
        detail: remedy.to_owned(),
    })
}

/// Returns the first line of `program --version`.
pub(super) fn version(program: &Path) -> Result<String, Error> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io("run", program))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Runs a program; returns the first 64 KiB of each output stream and the exit status if it ends in
/// time; otherwise kills it. Blocks.
///
/// # Errors
/// Fails if the program cannot be started, or with `TimedOut`.
pub(super) fn output_within(command: &mut Command, limit: Duration) -> std::io::Result<Output> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (read_apart(child.stdout.take()), read_apart(child.stderr.take()));
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            let read = |reader: JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
            return Ok(Output { status, stdout: read(stdout), stderr: read(stderr) });
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a stream to its end, so that its writer never waits; keeps its beginning.
fn read_apart(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        if let Some(mut stream) = stream {
            // A stream that breaks has ended.
            let _ = stream.by_ref().take(KEPT_BYTES).read_to_end(&mut kept);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        kept
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_output_holds_no_program_up_and_time_does() {
        let mut much = Command::new("sh");
        much.args(["-c", "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; exit 3"]);
        let output = output_within(&mut much, Duration::from_secs(60)).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout.len(), output.stderr.len()), (65_536, 65_536));
        let late = output_within(Command::new("sleep").arg("600"), Duration::from_millis(50));
        assert_eq!(late.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    }
}
