//! `hivekeep logs`. Reads the files itself, so that it works when the daemon
//! does not.

mod tail;

use serde_json::Value;

use super::{CliContext, CommandFailure, output};
use crate::doors::plain;

/// Show the daemon's log.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep logs
  hivekeep logs --follow
  hivekeep logs -n 1000 --level warn
  hivekeep logs --json | jq .")]
pub struct Args {
    /// Go on with what is written.
    #[arg(long, short)]
    follow: bool,
    /// How many of the last lines.
    #[arg(long, short = 'n', default_value_t = 50)]
    lines: usize,
    /// Only lines of this level or worse: error, warn, info, debug, trace.
    #[arg(long)]
    level: Option<tracing::Level>,
    /// Print the lines as they are: JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let folders = context.load()?.folders;
    let path = folders.log_file();
    let show = |line: &str| -> Result<(), CommandFailure> {
        if !passes(line, args.level) {
            return Ok(());
        }
        Ok(match args.json {
            true => output::painted(&format!("{}\n", plain::json(line))),
            false => output::text(&format!("{}\n", plain::line(&readable(line)))),
        }?)
    };
    if !path.exists() && !args.follow {
        return Err(CommandFailure::Other(format!("there is no log at {}", path.display())));
    }
    let mut tail = tail::Tail::open(&path, args.lines, |line| passes(line, args.level))?;
    for line in tail.last() {
        show(&line)?;
    }
    if !args.follow {
        return Ok(());
    }
    loop {
        for line in tail.more()? {
            show(&line)?;
        }
    }
}

fn passes(line: &str, level: Option<tracing::Level>) -> bool {
    let Some(level) = level else { return true };
    let parsed = serde_json::from_str::<Value>(line).ok();
    let own =
        parsed.as_ref().and_then(|line| line["level"].as_str()?.parse::<tracing::Level>().ok());
    own.is_none_or(|own| own <= level)
}

/// `2026-11-21 22:43:45 INFO  daemon: ready  pid=12`
fn readable(line: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else { return line.to_owned() };
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    let time = text("timestamp").get(..19).unwrap_or_default().replace('T', " ");
    let target = text("target").trim_start_matches("hivekeep_").trim_start_matches("hivekeep::");
    let mut rest = String::new();
    for (key, value) in &fields {
        match (key.as_str(), value) {
            ("timestamp" | "level" | "target" | "message", _) => {}
            ("span", Value::Object(span)) => {
                for (key, value) in span.iter().filter(|(key, _)| *key != "name") {
                    rest.push_str(&format!(" {key}={}", bare(value)));
                }
            }
            (key, value) => rest.push_str(&format!(" {key}={}", bare(value))),
        }
    }
    format!("{time} {:<5} {target}: {}{rest}", text("level"), text("message"))
}

fn bare(value: &Value) -> String {
    match value {
        Value::String(text) if !text.contains([' ', '\n']) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_well_and_levels_are_kept_apart() {
        let line =
            r#"{"timestamp":"2026-11-21T22:43:45.123Z","level":"WARN","message":"slow","ms":12,
            "target":"hivekeep::daemon","span":{"name":"call","tool":"exec"}}"#
                .replace('\n', "");
        assert_eq!(readable(&line), "2026-11-21 22:43:45 WARN  daemon: slow ms=12 tool=exec");
        assert!(passes(&line, Some(tracing::Level::INFO)));
        assert!(!passes(&line, Some(tracing::Level::ERROR)));
        assert!(passes("not json", Some(tracing::Level::ERROR)), "nothing is hidden by mistake");
    }
}
