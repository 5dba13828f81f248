//! `hivekeep check`: a doctor for host, folders and configuration.

mod distribution;
mod findings;

use hivekeep_runtime::Finding;

use super::{CliContext, CommandFailure, output};
use crate::doors::plain;

/// Look at everything hivekeep needs on this host, and say what to do about it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0 when nothing that is needed is missing, otherwise 1.")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let found = findings::all(context);
    let sound = found.iter().all(|finding| !finding.needed || finding.ok);
    if args.json {
        output::json(&serde_json::json!({ "ok": sound, "findings": found }))?;
    } else {
        output::painted(&readable(&found))?;
    }
    if sound { Ok(()) } else { Err(CommandFailure::Reported) }
}

fn readable(found: &[Finding]) -> String {
    let paint = output::Paint::stdout();
    let width = found.iter().map(|finding| finding.what.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for finding in found {
        let mark = match (finding.ok, finding.needed) {
            (true, _) => paint.good("ok  "),
            (false, true) => paint.bad("FAIL"),
            (false, false) => paint.odd("note"),
        };
        text.push_str(&format!(
            "{mark}  {:<width$}  {}\n",
            finding.what,
            plain::lines(&finding.detail)
        ));
        if let Some(remedy) = &finding.remedy {
            text.push_str(&format!(
                "      {:<width$}  {}\n",
                "",
                paint.faint(&format!("-> {}", plain::lines(remedy)))
            ));
        }
    }
    text
}
