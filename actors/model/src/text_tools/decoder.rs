//! Decoder of calls that stand in the text of an answer. Pure and strict: a block is a call as a whole, or it is told
//! why it is none.

use hivekeep_ports::ModelToolCall;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Word behind the backquotes of a block that is a call.
pub(crate) const FENCE: &str = "tool_call";
/// Most calls of an answer that are read; those behind them are not.
pub(crate) const MOST_CALLS: usize = 64;
/// Name of a call whose text cannot be read.
pub(crate) const UNREADABLE: &str = "unreadable_call";

/// Object of a call, or in the form of JSON alone of the last answer. A member that stands there twice is an error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallText {
    tool: Option<String>,
    arguments: Option<Map<String, Value>>,
    answer: Option<Value>,
}

/// Text of an answer without its blocks, and the calls that they are. Blocks that cannot be read stay in the text; one
/// that the bound of tokens cut is no call.
pub(crate) fn text(answer: &str, cut: bool) -> (String, Vec<ModelToolCall>) {
    let (mut text, mut calls) = (String::new(), Vec::new());
    let mut lines = answer.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let opens = line.trim_end().strip_prefix("```").is_some_and(|word| word.trim() == FENCE);
        if !opens || calls.len() >= MOST_CALLS {
            text.push_str(line);
            continue;
        }
        let (mut block, mut closed) = (String::new(), false);
        for within in lines.by_ref() {
            closed = within.trim_end() == "```";
            if closed {
                break;
            }
            block.push_str(within);
        }
        let read = match closed {
            true => Some(called(&block)),
            false if cut => None,
            false => Some(Err(
                "the block does not end: close it by a line of three backquotes".to_owned()
            )),
        };
        if !matches!(read, Some(Ok(_))) {
            text.push_str(line);
            text.push_str(&block);
            text.push_str(if closed { "```\n" } else { "" });
        }
        calls.extend(read.map(|read| call(calls.len(), read)));
    }
    (text.trim_end().to_owned(), calls)
}

/// The same of an answer that is one JSON object.
pub(crate) fn json(answer: &str, cut: bool) -> (String, Vec<ModelToolCall>) {
    let raw = || answer.to_owned();
    match serde_json::from_str(answer) {
        Ok(CallText { tool: None, arguments: None, answer: Some(Value::String(text)) }) => {
            (text, Vec::new())
        }
        Ok(CallText { tool: None, arguments: None, answer: Some(other) }) => {
            (other.to_string(), Vec::new())
        }
        Err(_) if cut => (raw(), Vec::new()),
        _ => match called(answer) {
            Ok(read) => (String::new(), vec![call(0, Ok(read))]),
            Err(why) => (raw(), vec![call(0, Err(why))]),
        },
    }
}

/// Name and arguments of a call, or why it cannot be made.
type ReadCall = Result<(String, Map<String, Value>), String>;

fn called(block: &str) -> ReadCall {
    match serde_json::from_str(block) {
        Ok(CallText { tool: Some(tool), arguments: Some(arguments), answer: None }) => {
            Ok((tool, arguments))
        }
        Ok(_) => {
            Err("a call is an object with `tool`, a text, and `arguments`, an object".to_owned())
        }
        Err(error) => Err(format!("the call is not readable as JSON: {error}")),
    }
}

fn call(nth: usize, read: ReadCall) -> ModelToolCall {
    let (name, arguments) = match read {
        Ok((tool, arguments)) => (tool, Value::Object(arguments)),
        Err(why) => (UNREADABLE.to_owned(), Value::String(why)),
    };
    ModelToolCall { id: format!("call_{}", nth + 1), name, arguments, signature: None }
}
