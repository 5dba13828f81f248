//! Formatter of a span's fields: JSON, written as it comes.
//!
//! Each call has a span, and `tracing-subscriber`'s own formatter of JSON makes a tree of a span's
//! fields before it writes them.

use std::{
    fmt::{self, Debug},
    io,
};

use serde::Serialize;
use tracing::{
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FormatFields, FormattedFields, format::Writer},
};

/// Formats fields as an object; a field that is recorded twice is in it twice.
#[derive(Debug)]
pub(super) struct SpanFields;

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

    use tracing_subscriber::{fmt::MakeWriter, layer::SubscriberExt};

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
