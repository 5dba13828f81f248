//! `hivekeep metrics`.

use hivekeep_metrics::{MetricCount, MetricsFound, MetricsWindow};

use super::{CliContext, CommandFailure, output};
use crate::doors::control::ControlMethod;

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
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    window: WindowArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
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

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let mut client = context.client()?;
    if let Some(Command::Export(WindowArgs { since })) = args.command {
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
