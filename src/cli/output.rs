//! Output of a command: results for people and programs, and a failure with its exit code.

use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use hivekeep_config::ConfigProblems;
use hivekeep_door_server::plain;
use hivekeep_kernel::ToolError;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use super::reach::Unreachable;
use crate::daemon;

pub(super) use hivekeep_runtime::bytes;

/// Bytes that went by, on standard error while it is a terminal.
pub(super) fn spinner(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}, {decimal_bytes} so far");
    let bar = ProgressBar::new_spinner().with_message(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Prints data for programs.
pub(super) fn json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    writeln!(io::stdout().lock(), "{}", plain::json(&text))
}

/// Prints data for programs that read line by line.
pub(super) fn json_line(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(value)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", plain::json(&text))?;
    out.flush()
}

/// Prints text that may say anything.
pub(super) fn text(text: &str) -> io::Result<()> {
    painted(&plain::lines(text))
}

/// Prints text with escape sequences of this program; what others say in it is plain already.
pub(super) fn painted(text: &str) -> io::Result<()> {
    io::stdout().lock().write_all(text.as_bytes())
}

/// Columns as wide as they need to be; the last one is not padded. Cells may say anything.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<_>> =
        rows.iter().map(|row| row.iter().map(|cell| plain::line(cell)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let head: Vec<_> = head.iter().map(|cell| Cow::Borrowed(*cell)).collect();
    for row in std::iter::once(&head).chain(&rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let padding = width.saturating_sub(cell.chars().count()) + 2;
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', padding));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A value as a cell shows it: a text without its quotes, nothing for null.
pub(super) fn word(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `3.2s`, `5m12s`, `4h07m`, `12d03h`.
pub(super) fn age(age: Duration) -> String {
    let secs = age.as_secs();
    match secs {
        0..60 => format!("{:.1}s", age.as_secs_f64()),
        60..3_600 => format!("{}m{:02}s", secs / 60, secs % 60),
        3_600..86_400 => format!("{}h{:02}m", secs / 3_600, secs / 60 % 60),
        _ => format!("{}d{:02}h", secs / 86_400, secs / 3_600 % 24),
    }
}

/// Words in colour when a terminal shows them and `NO_COLOR` is not set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint(pub(super) bool);

impl Paint {
    /// For standard output.
    pub(super) fn stdout() -> Self {
        Self(io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none())
    }

    pub(super) fn good(self, word: &str) -> String {
        self.with("32", word)
    }

    pub(super) fn bad(self, word: &str) -> String {
        self.with("31", word)
    }

    pub(super) fn odd(self, word: &str) -> String {
        self.with("33", word)
    }

    pub(super) fn faint(self, word: &str) -> String {
        self.with("2", word)
    }

    fn with(self, code: &str, word: &str) -> String {
        if self.0 { format!("\x1b[{code}m{word}\x1b[0m") } else { word.to_owned() }
    }
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandFailure {
    /// The configuration is refused. Exit code 2, as for a wrong command line.
    #[error(transparent)]
    Config(#[from] ConfigProblems),
    /// The command line makes no sense beyond what its parser sees. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// No daemon to talk to. Exit code 5 when simply none runs.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The daemon answered with an error.
    #[error("{}", .0.to_text())]
    Tool(Box<ToolError>),
    /// The daemon could not start or ended badly.
    #[error(transparent)]
    Daemon(#[from] Box<daemon::Error>),
    /// A check did not pass; its report was printed.
    #[error("")]
    Reported,
    /// A backup or a restore did not come about.
    #[error(transparent)]
    Backup(#[from] crate::backup::Error),
    /// Reading or writing.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Anything that only a person can act on.
    #[error("{0}")]
    Other(String),
}

impl From<ToolError> for CommandFailure {
    fn from(error: ToolError) -> Self {
        Self::Tool(Box::new(error))
    }
}

impl From<daemon::Error> for CommandFailure {
    fn from(error: daemon::Error) -> Self {
        Self::Daemon(Box::new(error))
    }
}

impl CommandFailure {
    fn code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Usage(_) => 2,
            Self::Unreachable(Unreachable::NotRunning(_)) => 5,
            Self::Daemon(error) => error.exit_code(),
            _ => 1,
        }
    }

    /// Tells the person and gives the exit code.
    pub(super) fn report(&self) -> ExitCode {
        if let Self::Io(error) = self
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            // `hivekeep ... | head` is no failure worth a line.
            return ExitCode::SUCCESS;
        }
        if !matches!(self, Self::Reported) {
            eprintln!("hivekeep: {}", plain::lines(&self.to_string()));
        }
        ExitCode::from(self.code())
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn ages_and_sizes_read_well() {
        let ages =
            [(3_200, "3.2s"), (312_000, "5m12s"), (14_820_000, "4h07m"), (1_047_600_000, "12d03h")];
        for (ms, expected) in ages {
            assert_eq!(age(Duration::from_millis(ms)), expected);
        }
        for (size, expected) in [(812, "812 B"), (2048, "2.0 KiB"), (5 << 30, "5.0 GiB")] {
            assert_eq!(bytes(size), expected);
        }
    }

    #[test]
    fn columns_line_up() {
        let rows =
            [vec!["a".to_owned(), "long cell".to_owned()], vec!["bcd".to_owned(), "é".to_owned()]];
        assert_eq!(table(&["X", "Y"], &rows), "X    Y\na    long cell\nbcd  é\n");
        let rows = [vec!["\x1b[2J\n".to_owned(), "1".to_owned()]];
        assert_eq!(table(&["X", "Y"], &rows), "X               Y\n\\u{1b}[2J\\u{a}  1\n");
    }
}
