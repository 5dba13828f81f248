//! Report of an interpreter about an execution, line by line, within bounds.

use hivekeep_kernel::ToolError;
use hivekeep_ports::CommandStream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::failed;
use crate::commands::tail;

/// Bytes of each stream that are kept, the last ones.
const KEPT_BYTES: usize = 64 * 1024;
/// Results that are kept, the first ones.
const MAX_RESULTS: usize = 100;
/// Bytes of all results together.
const MAX_RESULT_BYTES: usize = 12 * 1024 * 1024;
/// Longest form that is read as text.
const MAX_FORM_BYTES: usize = 64 * 1024;
/// Forms that are pictures or documents, and not read as text.
const BINARY: [&str; 3] = ["png", "jpeg", "pdf"];

/// An exception, or the end of the interpreter under the code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct CodeError {
    /// Its class; `KernelDied` and `KernelRestarted` if the interpreter ended: variables are gone then.
    pub(crate) name: String,
    /// Its message.
    pub(crate) value: String,
    /// Where it was raised.
    pub(crate) traceback: String,
}

/// Line of a report.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Stdout {
        text: String,
    },
    Stderr {
        text: String,
    },
    Result(Map<String, Value>),
    Error(CodeError),
    NumberOfExecutions {
        execution_count: u64,
    },
    #[serde(other)]
    Unknown,
}

/// The end of a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamEnd(CommandStream);

impl StreamEnd {
    fn push(&mut self, text: &str) {
        self.0.total_bytes += text.len() as u64;
        self.0.bytes.extend_from_slice(text.as_bytes());
        let excess = self.0.bytes.len().saturating_sub(KEPT_BYTES);
        self.0.bytes.drain(..excess);
    }

    /// Kept text, and the number of bytes before it that are left out.
    pub(crate) fn shown(&self) -> (String, u64) {
        tail(&self.0)
    }
}

/// Report of an execution, as far as it was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) stdout: StreamEnd,
    pub(crate) stderr: StreamEnd,
    pub(crate) results: Vec<Map<String, Value>>,
    pub(crate) results_omitted: u64,
    pub(crate) error: Option<CodeError>,
    pub(crate) execution_count: Option<u64>,
    /// Number of lines.
    pub(crate) lines: u64,
    result_bytes: usize,
}

impl Told {
    /// Takes a line.
    ///
    /// # Errors
    /// `interpreter_failed` for one that is none.
    pub(crate) fn hear(&mut self, line: &[u8]) -> Result<(), ToolError> {
        self.lines += 1;
        let line = hivekeep_runtime::json_text::from_slice(line).map_err(|error| {
            failed(format!("what the interpreter tells cannot be read: {error}"))
        })?;
        match line {
            Line::Stdout { text } => self.stdout.push(&text),
            Line::Stderr { text } => self.stderr.push(&text),
            Line::Result(result) => self.keep(result),
            Line::Error(error) => self.error = Some(bounded(error)),
            Line::NumberOfExecutions { execution_count } => {
                self.execution_count = Some(execution_count);
            }
            Line::Unknown => {}
        }
        Ok(())
    }

    fn keep(&mut self, mut result: Map<String, Value>) {
        let mut left_out = Map::new();
        result.retain(|form, value| {
            let bytes = value.as_str().map_or_else(|| value.to_string().len(), str::len);
            let fits = BINARY.contains(&form.as_str()) || bytes <= MAX_FORM_BYTES;
            if !fits {
                left_out.insert(form.clone(), json!(bytes));
            }
            fits
        });
        if !left_out.is_empty() {
            result.insert("left_out".to_owned(), Value::Object(left_out));
        }
        let bytes = result.values().map(|value| value.as_str().map_or(0, str::len)).sum::<usize>();
        if self.results.len() == MAX_RESULTS || self.result_bytes + bytes > MAX_RESULT_BYTES {
            self.results_omitted += 1;
            return;
        }
        self.result_bytes += bytes;
        self.results.push(result);
    }

    /// The last line of the output, for progress.
    pub(crate) fn last_output(&self) -> String {
        let (text, _) = self.stdout.shown();
        text.lines().last().unwrap_or_default().chars().take(200).collect()
    }
}

/// An error whose parts are a screen long at most.
fn bounded(error: CodeError) -> CodeError {
    let end = |text: String| {
        let from = text.len().saturating_sub(MAX_FORM_BYTES / 4);
        let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text[from..].to_owned()
    };
    CodeError { name: end(error.name), value: end(error.value), traceback: end(error.traceback) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(told: &mut Told, line: &Value) {
        told.hear(line.to_string().as_bytes()).expect("a line");
    }

    #[test]
    fn lines_add_up_to_an_execution() {
        let mut told = Told::default();
        for line in [
            json!({ "type": "number_of_executions", "execution_count": 3 }),
            json!({ "type": "stdout", "text": "a\n", "timestamp": 1 }),
            json!({ "type": "stderr", "text": "b", "timestamp": 1 }),
            json!({ "type": "stdout", "text": "c\n", "timestamp": 2 }),
            json!({ "type": "result", "is_main_result": true, "text": "5" }),
            json!({ "type": "error", "name": "E", "value": "v", "traceback": "t" }),
            json!({ "type": "of a later version", "x": 1 }),
        ] {
            hear(&mut told, &line);
        }
        assert_eq!((told.stdout.shown().0, told.stderr.shown().0), ("a\nc\n".into(), "b".into()));
        assert_eq!(told.last_output(), "c");
        assert_eq!(told.execution_count, Some(3));
        assert_eq!(told.results[0]["text"], "5");
        assert_eq!(told.error.as_ref().expect("one").name, "E");
        told.hear(br#"{"type":"stdout","text":"cut \ud83d"}"#).expect("a line");
        assert_eq!(told.last_output(), "cut \u{fffd}");
        let refused = told.hear(b"not JSON").expect_err("refused");
        assert_eq!(refused.code, "interpreter_failed");
    }

    #[test]
    fn everything_that_is_told_is_bounded() {
        let mut told = Told::default();
        for _ in 0..3 {
            hear(&mut told, &json!({ "type": "stdout", "text": "ö".repeat(KEPT_BYTES / 2) }));
        }
        let (text, omitted) = told.stdout.shown();
        assert_eq!((text.len(), omitted), (KEPT_BYTES, 2 * KEPT_BYTES as u64));
        let long = "h".repeat(MAX_FORM_BYTES + 1);
        hear(&mut told, &json!({ "type": "result", "html": long, "text": "t", "png": long }));
        let result = &told.results[0];
        assert_eq!(result["left_out"], json!({ "html": MAX_FORM_BYTES + 1 }));
        assert!(result.contains_key("png") && !result.contains_key("html"));
        let picture = "p".repeat(5 << 20);
        for _ in 0..3 {
            hear(&mut told, &json!({ "type": "result", "png": picture }));
        }
        assert_eq!((told.results.len(), told.results_omitted), (3, 1));
        hear(&mut told, &json!({ "type": "error", "traceback": "ö".repeat(1 << 20) }));
        assert!(told.error.expect("one").traceback.len() <= MAX_FORM_BYTES / 4);
    }
}
