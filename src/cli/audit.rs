//! Records of what was: `hivekeep audit`, `hivekeep events` and `hivekeep metrics`. The audit log is read from its files,
//! so that it can be when the daemon does not run.

use chrono::{DateTime, Utc};
use hivekeep_audit::{Entry, Filter, Head, entries, verify};
use hivekeep_door_server::plain;
use hivekeep_metrics::{MetricCount, MetricsFound, MetricsWindow};
use serde_json::{Value, json};

use super::{CliContext, CommandFailure, output};
use crate::control::ControlMethod;

/// Show and verify the audit log: each tool call, by whom, and what became of it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep audit list --tool exec --outcome denied
  hivekeep audit list --since 2026-01-31T00:00:00Z --json > calls.jsonl
  hivekeep audit verify
  hivekeep audit verify --head 1042:9f86d081...   # as an earlier run printed it")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Verify(VerifyArgs),
}

/// List entries, oldest first.
#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only those of this session.
    #[arg(long)]
    session: Option<String>,
    /// Only those of this tool.
    #[arg(long)]
    tool: Option<String>,
    /// Only those that came to this: `ok`, `abandoned`, or an error's code.
    #[arg(long)]
    outcome: Option<String>,
    /// Only those from this time on, in RFC 3339.
    #[arg(long, value_name = "TIME")]
    since: Option<DateTime<Utc>>,
    /// Only those before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<DateTime<Utc>>,
    /// Print each entry as the line of JSON that it was written as.
    #[arg(long)]
    json: bool,
}

/// Verify that nothing was changed, taken out or cut off.
///
/// Exit code 1 when something was. Prints the last entry's number and hash: kept where the daemon's user
/// cannot write, they tell whether the log was made anew.
#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// Number and hash that an earlier run printed; they have to be in the log.
    #[arg(long, value_name = "SEQ:HASH")]
    head: Option<Head>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let folder = context.load()?.folders.audit();
    match args.command {
        Command::List(args) => list(&folder, args),
        Command::Verify(args) => verified(&folder, &args),
    }
}

fn list(folder: &std::path::Path, args: ListArgs) -> Result<(), CommandFailure> {
    let ListArgs { session, tool, outcome, since, until, json } = args;
    let filter = Filter { session, tool, outcome, since, until, after: None };
    for entry in entries(folder, filter).map_err(other)? {
        let (entry, text) = entry.map_err(other)?;
        match json {
            true => output::painted(&format!("{}\n", plain::json(&text)))?,
            false => output::text(&format!("{}\n", plain::line(&readable(&entry))))?,
        }
    }
    Ok(())
}

fn readable(entry: &Entry) -> String {
    let time = entry.at.format("%Y-%m-%d %H:%M:%S");
    let data = &entry.data;
    if entry.kind != "call" {
        return format!("{:>7} {time} {:<23} {data}", entry.seq, entry.kind);
    }
    let text = |name: &str| data[name].as_str().unwrap_or("-").to_owned();
    let decided = match &data["decided_by"] {
        Value::String(layer) => format!(" by {layer}"),
        _ => String::new(),
    };
    format!(
        "{:>7} {time} {:<10} {:<12} {:<24} {:<20} {:>9.3} ms {}",
        entry.seq,
        text("user"),
        text("door"),
        text("tool"),
        format!("{}{decided}", text("outcome")),
        data["duration_ms"].as_f64().unwrap_or_default(),
        text("session"),
    )
}

fn verified(folder: &std::path::Path, args: &VerifyArgs) -> Result<(), CommandFailure> {
    match verify(folder, args.head) {
        Ok(found) if args.json => Ok(output::json(&found)?),
        Ok(found) => {
            let trimmed = match found.first {
                1 => String::new(),
                first => format!(", from entry {first} on: older ones were trimmed"),
            };
            let unfinished = match found.unfinished {
                true => {
                    "\nhalf a line stands behind the last entry; the daemon's next start removes it"
                }
                false => "",
            };
            let text = format!(
                "{} entries are as they were written{trimmed}\nhead {}{unfinished}\n",
                found.entries, found.head
            );
            Ok(output::text(&text)?)
        }
        Err(fault) => {
            if args.json {
                output::json(&json!({ "fault": fault.to_string() }))?;
            }
            Err(CommandFailure::Other(format!("the audit log: {fault}")))
        }
    }
}

fn other(error: hivekeep_audit::Error) -> CommandFailure {
    CommandFailure::Other(error.to_string())
}

/// Show what happened: every event of the daemon, in order.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep events                   # all that are kept
  hivekeep events --follow          # from now on
  hivekeep events --from 1200 --follow --json")]
pub struct EventsArgs {
    /// Go on with what happens.
    #[arg(long, short)]
    follow: bool,
    /// Begin with the event of this number.
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// Print each event as a line of JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn events(context: &CliContext, args: EventsArgs) -> Result<(), CommandFailure> {
    let from = args.from.or((!args.follow).then_some(1));
    let wanted = ControlMethod::Events { from, follow: args.follow };
    context.client()?.ask(wanted, |event| {
        if args.json {
            return Ok(output::json_line(&event)?);
        }
        Ok(output::text(&line(&event))?)
    })?;
    Ok(())
}

fn line(event: &Value) -> String {
    if let Some(missed) = event.get("missed") {
        return format!("        events {} to {} are gone\n", missed["first"], missed["last"]);
    }
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    let time = text("at").get(..19).unwrap_or_default().replace('T', " ");
    let data = match &event["data"] {
        Value::Null => String::new(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| format!(" {key}={value}")).collect()
        }
        other => format!(" {other}"),
    };
    let told = format!("{:>7} {time} {:<24} {}{data}", event["seq"], text("kind"), text("subject"));
    format!("{}\n", plain::line(&told))
}

/// Count what agents recorded, or export it.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  hivekeep metrics                        # the last seven days, as a table
  hivekeep metrics --since 24h --json
  hivekeep metrics export --since 30d > metrics.jsonl"
)]
pub struct MetricsArgs {
    #[command(subcommand)]
    command: Option<MetricsCommand>,
    #[command(flatten)]
    window: WindowArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum MetricsCommand {
    Export(WindowArgs),
}

/// Print each record as a line of JSON, the oldest first.
#[derive(Debug, clap::Args)]
struct WindowArgs {
    /// Length of the window, which ends now: a number with d, h or m, at most 365d.
    #[arg(long, value_name = "SINCE", default_value = "7d", value_parser = window)]
    since: MetricsWindow,
}

fn window(text: &str) -> Result<MetricsWindow, String> {
    text.parse().map_err(|error: hivekeep_kernel::ToolError| error.message)
}

pub(super) fn metrics(context: &CliContext, args: MetricsArgs) -> Result<(), CommandFailure> {
    let mut client = context.client()?;
    if let Some(MetricsCommand::Export(WindowArgs { since })) = args.command {
        client.ask(ControlMethod::MetricsExport { since }, |part| {
            for line in part.as_array().into_iter().flatten() {
                output::json_line(line)?;
            }
            Ok(())
        })?;
        return Ok(());
    }
    let wanted = ControlMethod::Metrics { since: args.window.since };
    let found: MetricsFound = client.get_as(wanted)?;
    match args.json {
        true => Ok(output::json(&found)?),
        false => Ok(output::text(&table(&found))?),
    }
}

fn table(found: &MetricsFound) -> String {
    let mut rows = vec![vec!["all".to_owned(), String::new(), found.total.to_string()]];
    let parts = [("type", &found.by_type), ("repo", &found.by_repo), ("agent", &found.by_agent)];
    for (kind, counts) in parts {
        rows.extend(counts.iter().map(|MetricCount { key, count }| {
            vec![kind.to_owned(), key.clone(), count.to_string()]
        }));
        let rest = found.left_out.iter().filter(|rest| rest.kind == kind);
        rows.extend(
            rest.map(|rest| vec![kind.to_owned(), "(others)".to_owned(), rest.count.to_string()]),
        );
    }
    output::table(&["BY", "NAME", "COUNT"], &rows)
}
