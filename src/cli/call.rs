//! `hivekeep call`.

mod args;

use std::{
    io::{self, IsTerminal, Read},
    time::Duration,
};

use hivekeep_door_server::plain;
use hivekeep_kernel::ProgressUpdate;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};

use super::{CliContext, CommandFailure, output, reference};
use crate::control::ControlMethod;

/// Call a tool and print its result.
///
/// All calls of one user share a lasting session, so what one call makes the
/// next can use.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  hivekeep call workspace_create --arg name=demo
  hivekeep call exec --arg workspace_id=demo --arg command='uname -a'
  hivekeep call file_write --arg workspace_id=demo --arg path=/tmp/x --arg content=- < x
  hivekeep call exec --json '{\"workspace_id\": \"demo\", \"command\": \"true\"}'
  hivekeep call exec --help         # what the tool takes

Exit code 1 when the tool failed, 5 when no daemon runs."
)]
pub struct Args {
    /// The tool, dotted or underscored.
    tool: Option<String>,
    /// A parameter as KEY=VALUE; the tool's schema gives its type. `-` reads
    /// standard input.
    #[arg(long = "arg", short, value_name = "KEY=VALUE")]
    args: Vec<String>,
    /// The whole input as a JSON object (`-` reads standard input), or, without
    /// a value, print the result as JSON.
    #[arg(long, value_name = "OBJECT", num_args = 0..=1, default_missing_value = "")]
    json: Option<String>,
    /// Give up after this many seconds instead of the tool's own limit.
    #[arg(long, value_name = "SECS")]
    timeout_secs: Option<u64>,
    /// Explain the tool, or this command.
    #[arg(long, short, action = clap::ArgAction::SetTrue)]
    help: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let catalogue = hivekeep_config::families::catalogue();
    let Some(name) = &args.tool else { return help() };
    let described = match catalogue.find(name) {
        Some(entry) if args.help => return Ok(output::text(&reference::explain(entry))?),
        Some(entry) => DescribedTool {
            name: entry.name().to_owned(),
            input_schema: entry.input_schema.clone(),
        },
        // Which tools other servers have knows the daemon.
        None if name.starts_with(SOURCE_PREFIX) => {
            let found = described(context, name)?;
            if args.help {
                return Ok(output::text(&readable(&found, 0))?);
            }
            serde_json::from_value(found).map_err(io::Error::from)?
        }
        None => return Err(reference::unknown(&catalogue, name)),
    };
    let mut input = match args.json.as_deref() {
        None | Some("") => Map::new(),
        Some(text) => object(&args::text_of(text)?)?,
    };
    for given in &args.args {
        let (key, value) = args::parse(given, &described.input_schema)?;
        input.insert(key, value);
    }
    let bar = Bar::new();
    let wanted = ControlMethod::Call {
        tool: described.name,
        args: input,
        timeout_ms: args.timeout_secs.map(|secs| secs.saturating_mul(1000)),
    };
    let outcome = context.client()?.ask(wanted, |item| {
        if let Ok(update) = serde_json::from_value::<ProgressUpdate>(item) {
            bar.show(&update);
        }
        Ok(())
    });
    bar.clear();
    let result = outcome?;
    match args.json {
        Some(_) => output::json(&result)?,
        None => output::text(&readable(&result, 0))?,
    }
    Ok(())
}

/// Beginning of the names of other servers' tools.
const SOURCE_PREFIX: &str = "mcp__";

/// Parts of a tool's description that a call needs.
#[derive(serde::Deserialize)]
struct DescribedTool {
    name: String,
    input_schema: Value,
}

/// A tool as the daemon describes it.
fn described(context: &CliContext, name: &str) -> Result<Value, CommandFailure> {
    let args = Map::from_iter([("name".to_owned(), name.into())]);
    let tool = "tool_describe".to_owned();
    let wanted = ControlMethod::Call { tool, args, timeout_ms: None };
    context.client()?.ask(wanted, |_| Ok(()))
}

fn help() -> Result<(), CommandFailure> {
    use clap::CommandFactory;
    let mut whole = super::Cli::command();
    whole.build();
    let command = whole.find_subcommand_mut("call").expect("this very subcommand");
    Ok(output::text(&command.render_long_help().to_string())?)
}

fn object(text: &str) -> Result<Map<String, Value>, CommandFailure> {
    match hivekeep_runtime::json_text::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(CommandFailure::Usage("--json: expected an object".to_owned())),
        Err(error) => Err(CommandFailure::Usage(format!("--json: {error}"))),
    }
}

/// A result for people: `key: value` lines, texts of several lines below their
/// key, lists item by item.
fn readable(value: &Value, depth: usize) -> String {
    let pad = "  ".repeat(depth);
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match value {
                Value::Object(inner) if !inner.is_empty() => {
                    format!("{pad}{key}:\n{}", readable(value, depth + 1))
                }
                Value::Array(items) if items.iter().any(Value::is_object) => {
                    format!("{pad}{key}:\n{}", readable(value, depth + 1))
                }
                Value::String(text) if text.trim_end().contains('\n') => {
                    let lines: String =
                        text.lines().map(|line| format!("{pad}  {line}\n")).collect();
                    format!("{pad}{key}:\n{lines}")
                }
                Value::String(text) => format!("{pad}{key}: {}\n", text.trim_end()),
                other => format!("{pad}{key}: {other}\n"),
            })
            .collect(),
        Value::Array(items) => items
            .iter()
            .map(|item| {
                let text = readable(item, depth + 1);
                format!("{pad}- {}", text.trim_start())
            })
            .collect(),
        Value::String(text) => format!("{pad}{text}\n"),
        other => format!("{pad}{other}\n"),
    }
}

/// Progress on standard error, when a terminal is there.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Self {
        let bar = match io::stderr().is_terminal() {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }

    pub(super) fn show(&self, update: &ProgressUpdate) {
        match update.total {
            Some(total) if total > 0.0 => {
                let style = ProgressStyle::with_template("{bar:30} {percent}% {msg}")
                    .expect("the template is well-formed");
                self.0.set_style(style);
                self.0.set_length(total.max(0.0) as u64);
                self.0.set_position(update.done.max(0.0) as u64);
            }
            _ => {}
        }
        self.0.set_message(plain::line(&update.message).into_owned());
    }

    /// Says what is waited for.
    pub(super) fn say(&self, what: &'static str) {
        self.0.set_message(what);
    }

    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// All of standard input.
fn stdin() -> Result<String, CommandFailure> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_reads_well() {
        let value = json!({
            "exit_code": 0,
            "stdout": "one\ntwo\n",
            "short": "text\n",
            "items": [{"name": "a", "size": 1}, {"name": "b", "size": 2}],
            "plain": [1, 2],
        });
        let expected = "exit_code: 0\nstdout:\n  one\n  two\nshort: text\nitems:\n  \
                        - name: a\n    size: 1\n  - name: b\n    size: 2\nplain: [1,2]\n";
        assert_eq!(readable(&value, 0), expected);
    }
}
