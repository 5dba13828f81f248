//! Tasks of a member: what is assigned, their ledger, their results. Pure.
//!
//! ```text
//!  assigned ─► put into the guest ─► … ─► its result read ─► recorded
//!              (again, until taken)                             │
//!    gone, and remembered ◄── received ◄── delivered ◄── acknowledged to the guest
//! ```
//! A task is answered when it is durable here. Everything after that goes on by itself
//! (`team/member/task_sync.rs`), over the port [`hivekeep_ports::Tasks`]. A result is kept
//! here before its guest may drop it, and by the guest before that.
//!
//! A task comes as the content of a message of the type `task_assignment`. A known mistake in it is
//! refused to the sender, with the field. A mistake that only the guest can detect, such as a folder
//! that is not there, becomes the task's result.

pub mod ledger;
pub mod result;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{MessageId, ToolError};
use hivekeep_runtime::json_text;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::codes;

/// The longest id, as in the guest.
const MAX_ID_BYTES: usize = 128;
/// The longest folder, as in Linux.
const MAX_PATH_BYTES: usize = 4096;
/// Most variables of one command, as in the guest.
const MAX_ENV_VARS: usize = 1024;
/// Longest time limit, as in the guest.
const MAX_TIMEOUT_SECS: u64 = 24 * 60 * 60;
const DEFAULT_TIMEOUT_SECS: u64 = 300;
const FIELDS: &str = "task_id, command, workdir, env, timeout_secs";

/// The tasks of a member, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Without a result.
    pub(crate) pending: usize,
    /// Running ones among them, as the guest said last.
    pub(crate) running: usize,
    /// Results that wait to be received.
    pub(crate) results: usize,
    /// The reason why tasks do not get to the guest, if they do not.
    pub(crate) trouble: Option<String>,
}

/// A task of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The message that assigned it.
    pub message: MessageId,
    /// The member that sent it.
    pub from: String,
    /// Time of that message.
    pub at: DateTime<Utc>,
    /// Bytes of the content it came as.
    pub bytes: usize,
    /// The command with its surroundings.
    pub work: Assignment,
}

/// A task, as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Names the task among those of its member.
    pub task_id: String,
    /// A script for `/bin/sh`.
    pub command: String,
    /// Working directory; the guest's choice if absent.
    pub workdir: Option<String>,
    /// Variables on top of the workspace's own.
    pub env: BTreeMap<String, String>,
    /// Time limit from the task's start.
    pub timeout_secs: u64,
}

impl Assignment {
    /// Reads the content of a message.
    ///
    /// # Errors
    /// `invalid_task`, with the field.
    pub fn parse(content: &str) -> Result<Self, ToolError> {
        let value: Value = json_text::from_str(content)
            .map_err(|error| wrong("content", format!("is not JSON: {error}")))?;
        let Value::Object(mut fields) = value else {
            return Err(wrong("content", "is JSON, but not an object"));
        };
        let task_id =
            text(&mut fields, "task_id")?.ok_or_else(|| wrong("task_id", "is missing"))?;
        if task_id.is_empty()
            || task_id.len() > MAX_ID_BYTES
            || task_id.chars().any(char::is_control)
        {
            let rule = format!("must have 1 to {MAX_ID_BYTES} bytes and no control characters");
            return Err(wrong("task_id", rule));
        }
        let command =
            text(&mut fields, "command")?.ok_or_else(|| wrong("command", "is missing"))?;
        let workdir = text(&mut fields, "workdir")?;
        if let Some(dir) = &workdir
            && !(1..=MAX_PATH_BYTES).contains(&dir.len())
        {
            return Err(wrong("workdir", format!("must have 1 to {MAX_PATH_BYTES} bytes")));
        }
        let env = env(&mut fields)?;
        let timeout_secs = timeout(&mut fields)?;
        if let Some(unknown) = fields.keys().next() {
            return Err(wrong(unknown, "is not a field of a task"));
        }
        Ok(Self { task_id, command, workdir, env, timeout_secs })
    }

    /// A fingerprint: equal for equal tasks, and only for those.
    pub fn print(&self) -> String {
        let bytes = serde_json::to_vec(self).expect("plain data");
        blake3::hash(&bytes).to_hex().to_string()
    }
}

fn wrong(field: &str, what: impl std::fmt::Display) -> ToolError {
    let shown: String = field.chars().take(80).collect();
    let message = format!("the task was not taken: `{shown}` {what}");
    ToolError::new(hivekeep_kernel::Layer::Schema, codes::INVALID_TASK, message)
        .next(format!("content is a JSON object of {FIELDS}; the first two are needed"))
        .detail("field", shown)
}

/// Takes a field; `null` is as good as none.
fn take(fields: &mut Map<String, Value>, name: &str) -> Option<Value> {
    fields.remove(name).filter(|value| !value.is_null())
}

fn text(fields: &mut Map<String, Value>, name: &str) -> Result<Option<String>, ToolError> {
    match take(fields, name) {
        None => Ok(None),
        Some(Value::String(text)) if text.contains('\0') => Err(wrong(name, "holds a NUL byte")),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(name, "must be a string")),
    }
}

fn env(fields: &mut Map<String, Value>) -> Result<BTreeMap<String, String>, ToolError> {
    let vars = match take(fields, "env") {
        None => return Ok(BTreeMap::new()),
        Some(Value::Object(vars)) => vars,
        Some(_) => return Err(wrong("env", "must be an object")),
    };
    if vars.len() > MAX_ENV_VARS {
        return Err(wrong("env", format!("has more than {MAX_ENV_VARS} variables")));
    }
    let mut env = BTreeMap::new();
    for (name, value) in vars {
        let field = format!("env.{name}");
        let head = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if !head || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(wrong(&field, "is not a variable name"));
        }
        match value {
            Value::String(text) if text.contains('\0') => {
                return Err(wrong(&field, "holds a NUL byte"));
            }
            Value::String(text) => drop(env.insert(name, text)),
            _ => return Err(wrong(&field, "must be a string")),
        }
    }
    Ok(env)
}

fn timeout(fields: &mut Map<String, Value>) -> Result<u64, ToolError> {
    let Some(value) = take(fields, "timeout_secs") else { return Ok(DEFAULT_TIMEOUT_SECS) };
    let secs = value.as_number().and_then(json_text::integer).and_then(|secs| secs.as_u64());
    let secs = secs.filter(|secs| (1..=MAX_TIMEOUT_SECS).contains(secs));
    secs.ok_or_else(|| wrong("timeout_secs", format!("must be 1 to {MAX_TIMEOUT_SECS}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_references_example_is_a_task() {
        let content = r#"{"task_id":"task-001","command":"cd /workspace && cargo test","workdir":"/workspace","env":{"RUST_LOG":"debug"},"timeout_secs":120}"#;
        let task = Assignment::parse(content).expect("a task");
        assert_eq!((task.task_id.as_str(), task.timeout_secs), ("task-001", 120));
        assert_eq!(task.env["RUST_LOG"], "debug");
        let least =
            Assignment::parse(r#"{"task_id":"t","command":"","env":null}"#).expect("a task");
        assert_eq!((least.workdir, least.timeout_secs), (None, 300));
        let odd = r#"{"task_id":"t","command":"echo \ud83d","timeout_secs":5.0}"#;
        let odd = Assignment::parse(odd).expect("a task");
        assert_eq!((&*odd.command, odd.timeout_secs), ("echo \u{fffd}", 5));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_field() {
        let whole = json!({ "task_id": "t", "command": "true" });
        for (field, value) in [
            ("task_id", json!(null)),
            ("task_id", json!("")),
            ("task_id", json!(7)),
            ("task_id", json!("a\nb")),
            ("task_id", json!("x".repeat(129))),
            ("command", json!(["true"])),
            ("command", json!("a\0b")),
            ("workdir", json!("")),
            ("workdir", json!("/".repeat(4097))),
            ("env", json!(["A=1"])),
            ("timeout_secs", json!(0)),
            ("timeout_secs", json!(86_401)),
            ("timeout_secs", json!("300")),
            ("timeout_secs", json!(1.5)),
            ("timeout", json!(5)),
        ] {
            let mut task = whole.clone();
            task[field] = value;
            let error = Assignment::parse(&task.to_string()).expect_err("wrong");
            assert_eq!(
                (error.code.as_ref(), &error.details["field"]),
                ("invalid_task", &json!(field)),
                "{task}"
            );
        }
        for (name, value) in
            [("1A", json!("")), ("A", json!(1)), ("A", json!("\0")), ("", json!(""))]
        {
            let mut task = whole.clone();
            task["env"] = json!({ name: value });
            let error = Assignment::parse(&task.to_string()).expect_err("wrong");
            assert_eq!(error.details["field"], json!(format!("env.{name}")));
        }
        for content in ["", "[]", "{", "7", "{\"task_id\":\"t\",\"task_id\":\"u\"}"] {
            assert_eq!(Assignment::parse(content).expect_err("wrong").code, "invalid_task");
        }
    }

    proptest! {
        #[test]
        fn any_content_is_a_task_or_an_error(content in ".{0,200}", command in "[^\\x00]{0,200}") {
            drop(Assignment::parse(&content));
            let task = json!({ "task_id": "t", "command": command }).to_string();
            let read = Assignment::parse(&task).expect("a task");
            prop_assert_eq!(&read.command, &command);
            // A task as written is hardly larger than as sent.
            let written = serde_json::to_vec(&read).expect("plain data").len();
            prop_assert!(written <= task.len() + 64);
        }
    }
}
