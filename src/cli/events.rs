//! `hivekeep events`.

use serde_json::Value;

use super::{CliContext, CommandFailure, output};
use crate::doors::{control::ControlMethod, plain};

/// Show what happened: every event of the daemon, in order.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep events                   # all that are kept
  hivekeep events --follow          # from now on
  hivekeep events --from 1200 --follow --json")]
pub struct Args {
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

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
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
