//! Size limit: a result must fit what its tool declared.
//!
//! Tools cap themselves and say so in their results; this is the last line, for
//! one that did not. A cut result would be a lie to a program, so it is refused
//! whole, with the parameters that make it smaller.

use std::io;

use hivekeep_kernel::{Effect, Layer, ToolError};
use serde_json::Value;

use crate::ToolEntry;
use crate::codes;

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

pub(super) fn pass(entry: &ToolEntry, value: Value) -> Result<Value, ToolError> {
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
    Err(ToolError::new(Layer::Result, codes::RESULT_TOO_LARGE, message)
        .next(step)
        .detail("budget_bytes", budget)
        .detail("narrow_by", narrow))
}

fn narrowing(entry: &ToolEntry) -> Vec<&'static str> {
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

#[cfg(test)]
mod tests {
    use schemars::{Schema, json_schema};
    use serde_json::json;

    use super::*;
    use crate::catalogue::tests::catalogue_of;

    fn input() -> Schema {
        json_schema!({ "type": "object", "description": "x", "properties": {
            "limit": { "type": "integer", "description": "x" },
            "other": { "type": "integer", "description": "x" },
        } })
    }

    /// The budget is 100 bytes.
    fn result(effect: Effect, text: &str) -> Result<Value, ToolError> {
        let catalogue = catalogue_of(effect, input);
        pass(catalogue.entries().next().expect("one"), json!({ "a": text }))
    }

    #[test]
    fn the_budget_is_exact_and_counts_json_bytes() {
        let framing = r#"{"a":""}"#.len();
        assert!(result(Effect::Read, &"x".repeat(100 - framing)).is_ok());
        assert!(result(Effect::Read, &"x".repeat(101 - framing)).is_err());
        assert!(result(Effect::Read, &"é".repeat(50 - framing / 2)).is_ok());
        assert!(result(Effect::Read, &"é".repeat(51 - framing / 2)).is_err());
        assert!(result(Effect::Read, &"\n".repeat(50)).is_err(), "escapes count");
    }

    #[test]
    fn the_refusal_names_what_makes_it_smaller_and_what_was_done() {
        let read = result(Effect::Read, &"x".repeat(200)).expect_err("too large");
        assert_eq!(read.details["narrow_by"], json!(["limit"]));
        assert!(read.next_step.expect("a step").contains("`limit`"));
        assert!(!read.message.contains("is done"));
        let write = result(Effect::Write, &"x".repeat(200)).expect_err("too large");
        assert!(write.message.contains("what it was to do is done"));
    }
}
