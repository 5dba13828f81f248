//! `hivekeep check`: a doctor for host, folders and configuration.

use hivekeep_runtime::Finding;

use super::{CliContext, CommandFailure, client::Client, output, reach::Unreachable};
use crate::{check, config::LoadedConfig, doors::plain};

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
    let found = all(context);
    let sound = found.iter().all(|finding| !finding.needed || finding.ok);
    if args.json {
        output::json(&serde_json::json!({ "ok": sound, "findings": found }))?;
    } else {
        output::painted(&readable(&found))?;
    }
    if sound { Ok(()) } else { Err(CommandFailure::Reported) }
}

/// Everything, in the order in which a person would mend it.
fn all(context: &CliContext) -> Vec<Finding> {
    let loaded = match context.load() {
        Ok(loaded) => loaded,
        Err(problems) => {
            let remedy = "mend it; `hivekeep config --default` shows every key";
            return vec![Finding::bad("configuration", problems.to_string(), remedy)];
        }
    };
    let mut found = check::of_daemon(&loaded);
    found.push(daemon(context, &loaded));
    found.extend(check::of_families(&loaded));
    found
}

fn daemon(context: &CliContext, loaded: &LoadedConfig) -> Finding {
    match Client::connect(&context.reach(loaded)) {
        Ok(client) => {
            let welcome = &client.welcome;
            let detail = format!("version {}, pid {}", welcome.version, welcome.pid);
            if welcome.version == env!("CARGO_PKG_VERSION") {
                return Finding::good("daemon", detail);
            }
            Finding::bad("daemon", detail, "restart it: it is not of this program's version")
                .optional()
        }
        Err(Unreachable::NotRunning(_)) => {
            Finding::good("daemon", "not running; `hivekeep mcp` starts it").optional()
        }
        Err(error) => Finding::bad("daemon", error.to_string(), "look at `hivekeep logs`"),
    }
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
