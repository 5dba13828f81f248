//! Logs: JSON lines in the log folder, and for people on stderr when a terminal
//! or a service manager's journal is there.
//!
//! Files are rotated by size (`logroller`): the age of a log says nothing about
//! its size, and `tracing-appender` cannot rotate by size. Its non-blocking
//! writer is what keeps the disk away from the async threads.

use std::{
    fs,
    io::{self, IsTerminal},
    os::unix::fs::DirBuilderExt,
};

use logroller::{LogRollerBuilder, Rotation, RotationSize};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

use super::span_fields::SpanFields;
use crate::config::{LOG_FILE, LoadedConfig};

/// Lines that may wait for the disk; one more is dropped and counted.
const LINES_WAITING: usize = 16_384;

/// Keeps the log's writer; dropping it writes out what waits.
#[derive(Debug)]
pub(super) struct Logging {
    _writer: WorkerGuard,
}

/// The reason why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The folder or file cannot be used.
    #[error("the log folder {path}: {source}")]
    Folder {
        /// The folder.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// Logging was set up before.
    #[error("logging is set up already: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Sets up logging for the process, and sends panics there.
pub(super) fn start(loaded: &LoadedConfig) -> Result<Logging, LoggingError> {
    let (options, folder) = (&loaded.config.daemon, &loaded.folders.logs);
    let failed =
        |source: io::Error| LoggingError::Folder { path: folder.display().to_string(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    let file = LogRollerBuilder::new(folder.as_path(), LOG_FILE.as_ref())
        .rotation(Rotation::SizeBased(RotationSize::MB(options.log_file_mb)))
        .max_keep_files(options.log_files_kept)
        .file_mode(0o600)
        .build()
        .map_err(|error| failed(io::Error::other(error.to_string())))?;
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_WAITING)
        .thread_name("log-writer")
        .finish(file);
    let filter =
        || options.log_level.parse::<EnvFilter>().unwrap_or_else(|_| EnvFilter::new("info"));
    let to_file = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .fmt_fields(SpanFields)
        .with_writer(writer)
        .with_filter(filter());
    let to_people = (io::stderr().is_terminal() || std::env::var_os("JOURNAL_STREAM").is_some())
        .then(|| {
            tracing_subscriber::fmt::layer()
                .with_ansi(io::stderr().is_terminal())
                .with_writer(io::stderr)
                .with_filter(filter())
        });
    tracing_subscriber::registry().with(to_file).with(to_people).try_init()?;
    panics_are_logged();
    Ok(Logging { _writer: guard })
}

/// A panic is one event, not seventy lines on stderr; its actor's supervisor
/// hears of it too.
fn panics_are_logged() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let reason = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("a panic without a text");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(%reason, %place, thread = std::thread::current().name(), "panicked");
    }));
}
