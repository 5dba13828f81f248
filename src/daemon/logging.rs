//! Logs: JSON lines in the log folder, and for people on stderr when a terminal
//! or a service manager's journal is there.
//!
//! Files are rotated by size (`logroller`): the age of a log says nothing about
//! its size, and `tracing-appender` cannot rotate by size. Its non-blocking
//! writer is what keeps the disk away from the async threads.

use std::{
    fmt::{self, Debug},
    fs,
    io::{self, IsTerminal, Write as _},
    os::unix::fs::DirBuilderExt,
};

use hivekeep_config::{LOG_FILE, LoadedConfig};
use logroller::{LogRollerBuilder, Rotation, RotationSize};
use serde::Serialize;
use tracing::{
    field::{Field, Visit},
    span,
};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{
    EnvFilter, Layer,
    field::RecordFields,
    fmt::{FormatFields, FormattedFields, format::Writer},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

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
    let people_read = to_people.is_some();
    tracing_subscriber::registry().with(to_file).with(to_people).try_init()?;
    panics_are_logged(people_read);
    Ok(Logging { _writer: guard })
}

/// A panic is one event, not seventy lines on stderr; its actor's supervisor
/// hears of it too. One that ends the daemon is told on stderr also where no
/// person reads that, for the log may lack its last lines.
fn panics_are_logged(people_read: bool) {
    std::panic::set_hook(Box::new(move |panic| {
        let payload = panic.payload();
        let reason = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("a panic without a text");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current();
        tracing::error!(%reason, %place, thread = thread.name(), "panicked");
        if !people_read && thread.name() == Some("main") {
            let _nobody_reads = writeln!(io::stderr(), "hivekeep panicked at {place}: {reason}");
        }
    }));
}

/// Formats fields as an object; a field that is recorded twice is in it twice.
#[derive(Debug)]
struct SpanFields;

impl<'writer> FormatFields<'writer> for SpanFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut object = FieldObject { writer, fields: 0, failed: false };
        object.writer.write_char('{')?;
        fields.record(&mut object);
        object.writer.write_char('}')?;
        if object.failed { Err(fmt::Error) } else { Ok(()) }
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &span::Record<'_>,
    ) -> fmt::Result {
        if current.fields.is_empty() {
            return self.format_fields(current.as_writer(), fields);
        }
        current.fields.truncate(current.fields.len() - 1);
        let before = usize::from(current.fields.len() > 1);
        let mut object = FieldObject { writer: current.as_writer(), fields: before, failed: false };
        fields.record(&mut object);
        object.writer.write_char('}')?;
        if object.failed { Err(fmt::Error) } else { Ok(()) }
    }
}

/// An object that is being written.
struct FieldObject<'writer> {
    writer: Writer<'writer>,
    fields: usize,
    failed: bool,
}

impl FieldObject<'_> {
    fn put(&mut self, field: &Field, value: impl Serialize) {
        let comma = if self.fields > 0 { "," } else { "" };
        let name = field.name().strip_prefix("r#").unwrap_or(field.name());
        let written = write!(self.writer, "{comma}\"{name}\":").and_then(|()| {
            serde_json::to_writer(TextSink(&mut self.writer), &value).map_err(|_| fmt::Error)
        });
        self.fields += 1;
        self.failed |= written.is_err();
    }
}

impl Visit for FieldObject<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format_args!("{value:?}"));
    }
}

/// Sink of JSON, which is text.
struct TextSink<'a, 'writer>(&'a mut Writer<'writer>);

impl io::Write for TextSink<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        self.0.write_str(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Lines {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn a_line_has_the_fields_of_its_span_as_they_are() {
        let lines = Lines::default();
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .fmt_fields(SpanFields)
            .with_writer(lines.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let span = tracing::info_span!(
                "call", id = %"a\"b\n", count = 3, part = 0.5, yes = true, list = ?[1, 2],
                later = tracing::field::Empty
            );
            span.record("later", "ä");
            span.in_scope(|| tracing::info!(own = 1, "said"));
            tracing::info_span!("bare", later = tracing::field::Empty).in_scope(|| {
                tracing::Span::current().record("later", 7).in_scope(|| tracing::info!("twice"))
            });
        });
        let text = String::from_utf8(lines.0.lock().expect("nobody panicked").clone());
        let text = text.expect("text");
        let spans: Vec<serde_json::Value> = text
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).expect("JSON")["span"].clone()
            })
            .collect();
        assert_eq!(
            spans,
            [
                serde_json::json!({
                    "name": "call", "id": "a\"b\n", "count": 3, "part": 0.5, "yes": true, "list": "[1, 2]",
                    "later": "ä"
                }),
                serde_json::json!({ "name": "bare", "later": 7 }),
            ]
        );
    }
}
