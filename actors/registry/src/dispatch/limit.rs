//! A result must fit what its tool declared.
//!
//! Tools cap themselves and say so in their results; this is the last line, for
//! one that did not. A cut result would be a lie to a program, so it is refused
//! whole, with the parameters that make it smaller.

use std::io;

use hivekeep_kernel::{Effect, Layer, ToolError};
use serde_json::Value;

use crate::Entry;

/// Parameters that make results smaller, by their usual names.
const NARROWING: [&str; 12] = [
    "limit",
    "max_bytes",
    "max_output_bytes",
    "max_lines",
    "lines",
    "tail",
    "max_results",
    "count",
    "offset",
    "depth",
    "pattern",
    "path",
];

pub(super) fn pass(entry: &Entry, value: Value) -> Result<Value, ToolError> {
    let budget = entry.info.spec.result_budget_bytes;
    let mut counter = Counter { left: budget };
    if serde_json::to_writer(&mut counter, &value).is_ok() {
        return Ok(value);
    }
    let narrow = narrowing(entry);
    let step = match narrow.as_slice() {
        [] => "ask for less".to_owned(),
        names => format!("ask for less with `{}`", names.join("` or `")),
    };
    let done = match entry.info.spec.effect {
        Effect::Read => "",
        _ => "; what it was to do is done",
    };
    let message = format!("the result of `{}` is larger than {budget} bytes{done}", entry.name());
    Err(ToolError::new(Layer::Result, "result_too_large", message)
        .next(step)
        .detail("budget_bytes", budget)
        .detail("narrow_by", narrow))
}

fn narrowing(entry: &Entry) -> Vec<&'static str> {
    let properties = entry.input_schema.get("properties");
    let has = |name: &&str| properties.is_some_and(|all| all.get(*name).is_some());
    NARROWING.into_iter().filter(has).collect()
}

/// Counts what is written and stops at the budget.
struct Counter {
    left: usize,
}

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.left.checked_sub(bytes.len()) {
            Some(left) => {
                self.left = left;
                Ok(bytes.len())
            }
            None => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
