//! `hivekeep logs`. Reads the files itself, so that it works when the daemon
//! does not.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use hivekeep_door_server::plain;
use serde_json::Value;

use super::{CliContext, CommandFailure, output};

/// Show the daemon's log.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep logs
  hivekeep logs --follow
  hivekeep logs -n 1000 --level warn
  hivekeep logs --json | jq .")]
pub struct Args {
    /// Go on with what is written.
    #[arg(long, short)]
    follow: bool,
    /// How many of the last lines.
    #[arg(long, short = 'n', default_value_t = 50)]
    lines: usize,
    /// Only lines of this level or worse: error, warn, info, debug, trace.
    #[arg(long)]
    level: Option<tracing::Level>,
    /// Print the lines as they are: JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let folders = context.load()?.folders;
    let path = folders.log_file();
    let show = |line: &str| -> Result<(), CommandFailure> {
        if !passes(line, args.level) {
            return Ok(());
        }
        Ok(match args.json {
            true => output::painted(&format!("{}\n", plain::json(line))),
            false => output::text(&format!("{}\n", plain::line(&readable(line)))),
        }?)
    };
    if !path.exists() && !args.follow {
        return Err(CommandFailure::Other(format!("there is no log at {}", path.display())));
    }
    let mut tail = Tail::open(&path, args.lines, |line| passes(line, args.level))?;
    for line in tail.last() {
        show(&line)?;
    }
    if !args.follow {
        return Ok(());
    }
    loop {
        for line in tail.more()? {
            show(&line)?;
        }
    }
}

fn passes(line: &str, level: Option<tracing::Level>) -> bool {
    let Some(level) = level else { return true };
    let parsed = serde_json::from_str::<Value>(line).ok();
    let own =
        parsed.as_ref().and_then(|line| line["level"].as_str()?.parse::<tracing::Level>().ok());
    own.is_none_or(|own| own <= level)
}

/// `2026-11-21 22:43:45 INFO  daemon: ready  pid=12`
fn readable(line: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else { return line.to_owned() };
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    let time = text("timestamp").get(..19).unwrap_or_default().replace('T', " ");
    let target = text("target").trim_start_matches("hivekeep_").trim_start_matches("hivekeep::");
    let mut rest = String::new();
    for (key, value) in &fields {
        match (key.as_str(), value) {
            ("timestamp" | "level" | "target" | "message", _) => {}
            ("span", Value::Object(span)) => {
                for (key, value) in span.iter().filter(|(key, _)| *key != "name") {
                    rest.push_str(&format!(" {key}={}", bare(value)));
                }
            }
            (key, value) => rest.push_str(&format!(" {key}={}", bare(value))),
        }
    }
    format!("{time} {:<5} {target}: {}{rest}", text("level"), text("message"))
}

fn bare(value: &Value) -> String {
    match value {
        Value::String(text) if !text.contains([' ', '\n']) => text.clone(),
        other => other.to_string(),
    }
}

/// Interval between two looks at a followed file.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The most of the current file that is searched for its last lines.
const SEARCHED_BYTES: u64 = 32 * 1024 * 1024;

/// A reader at the end of a log.
struct Tail {
    path: PathBuf,
    file: Option<BufReader<File>>,
    last: Vec<String>,
    /// The part of a line that was written so far.
    part: Vec<u8>,
}

impl Tail {
    /// Opens a log and keeps its last `lines` lines that are wanted.
    fn open(path: &Path, lines: usize, wanted: impl Fn(&str) -> bool) -> io::Result<Self> {
        let mut tail =
            Self { path: path.to_owned(), file: None, last: Vec::new(), part: Vec::new() };
        let Some(mut file) = open(path)? else { return Ok(tail) };
        let length = file.metadata()?.len();
        if length > SEARCHED_BYTES {
            file.seek(SeekFrom::Start(length - SEARCHED_BYTES))?;
        }
        tail.file = Some(BufReader::new(file));
        let mut all = tail.read()?;
        if length > SEARCHED_BYTES && !all.is_empty() {
            // The first one may be cut.
            all.remove(0);
        }
        all.retain(|line| wanted(line));
        tail.last = all.split_off(all.len().saturating_sub(lines));
        Ok(tail)
    }

    /// The last lines, once.
    fn last(&mut self) -> Vec<String> {
        std::mem::take(&mut self.last)
    }

    /// Returns the lines written since the last call; waits a moment first. Reads a rotated file to
    /// its end before the new one.
    fn more(&mut self) -> io::Result<Vec<String>> {
        std::thread::sleep(LOOK_EVERY);
        let mut lines = self.read()?;
        if self.was_rotated()? {
            lines.extend(self.read()?);
            self.part.clear();
            self.file = open(&self.path)?.map(BufReader::new);
            lines.extend(self.read()?);
        }
        Ok(lines)
    }

    fn was_rotated(&self) -> io::Result<bool> {
        let now = match std::fs::metadata(&self.path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(file) = &self.file else { return Ok(true) };
        let own = file.get_ref().metadata()?;
        Ok((own.dev(), own.ino()) != (now.dev(), now.ino()))
    }

    fn read(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        let Some(file) = &mut self.file else { return Ok(lines) };
        loop {
            file.read_until(b'\n', &mut self.part)?;
            if self.part.last() != Some(&b'\n') {
                return Ok(lines);
            }
            self.part.pop();
            lines.push(String::from_utf8_lossy(&self.part).into_owned());
            self.part.clear();
        }
    }
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_line_reads_well_and_levels_are_kept_apart() {
        let line =
            r#"{"timestamp":"2026-11-21T22:43:45.123Z","level":"WARN","message":"slow","ms":12,
        "target":"hivekeep::daemon","span":{"name":"call","tool":"exec"}}"#
                .replace('\n', "");
        assert_eq!(readable(&line), "2026-11-21 22:43:45 WARN  daemon: slow ms=12 tool=exec");
        assert!(passes(&line, Some(tracing::Level::INFO)));
        assert!(!passes(&line, Some(tracing::Level::ERROR)));
        assert!(passes("not json", Some(tracing::Level::ERROR)), "nothing is hidden by mistake");
    }

    #[test]
    fn lines_are_followed_through_a_rotation_and_never_cut() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log");
        std::fs::write(&path, "1\n2\n3\npart").expect("writes");
        let mut tail = Tail::open(&path, 2, |_| true).expect("opens");
        assert_eq!(tail.last(), ["2", "3"]);
        let mut file = File::options().append(true).open(&path).expect("opens");
        writeln!(file, "ial").expect("writes");
        assert_eq!(tail.more().expect("reads"), ["partial"]);
        writeln!(file, "before").expect("writes");
        std::fs::rename(&path, dir.path().join("log.1")).expect("renames");
        std::fs::write(&path, "after\n").expect("writes");
        assert_eq!(tail.more().expect("reads"), ["before", "after"]);
    }

    #[test]
    fn a_log_that_is_not_there_yet_can_be_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log");
        let mut tail = Tail::open(&path, 5, |_| true).expect("opens");
        std::fs::write(&path, "first\n").expect("writes");
        assert_eq!(tail.more().expect("reads"), ["first"]);
    }
}
