//! `hivekeep config`, and `hivekeep check`: a doctor for host, folders and configuration.

use hivekeep_door_server::plain;
use hivekeep_runtime::Finding;

use super::{CliContext, CommandFailure, output, reach::Unreachable};
use crate::{check, control::ControlMethod};

/// Show the configuration in force, and where each value comes from.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep config
  hivekeep config --default > config.toml
  HIVEKEEP_DAEMON__LOG_LEVEL=debug hivekeep config --set registry.rate.enabled=false")]
pub struct Args {
    /// Print the file that ships instead: every key with its default.
    #[arg(long)]
    default: bool,
    /// Print JSON: the folders in use, and every key with value and source.
    #[arg(long, conflicts_with = "default")]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    if args.default {
        return Ok(output::text(&hivekeep_config::shipped())?);
    }
    let loaded = context.load()?;
    for old_name in &loaded.renamed {
        eprintln!("hivekeep: {old_name}");
    }
    if args.json {
        let whole = serde_json::json!({
            "file": loaded.file,
            "folders": loaded.folders,
            "values": loaded.entries,
        });
        return Ok(output::json(&whole)?);
    }
    let rows: Vec<_> = loaded
        .entries
        .iter()
        .map(|entry| vec![entry.key.clone(), entry.value.to_string(), entry.source.to_string()])
        .collect();
    let folders = &loaded.folders;
    let places = [
        ("state", &folders.state),
        ("run", &folders.run),
        ("logs", &folders.logs),
        ("socket", &folders.socket),
    ];
    let mut text = output::table(&["KEY", "VALUE", "FROM"], &rows);
    text.push('\n');
    for (name, path) in places {
        text.push_str(&format!("{name:<7} {}\n", path.display()));
    }
    Ok(output::text(&text)?)
}

/// Look at everything hivekeep needs on this host, and say what to do about it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0 when nothing that is needed is missing, otherwise 1.")]
pub struct CheckArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn check(context: &CliContext, args: CheckArgs) -> Result<(), CommandFailure> {
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
    found.push(daemon(context));
    found.extend(check::of_families(&loaded));
    found
}

const OTHER_VERSION: &str = "restart it: it is not of this program's version";

fn daemon(context: &CliContext) -> Finding {
    match context.client().and_then(|mut client| client.get(ControlMethod::Status {})) {
        Ok(status) => {
            let version = status["version"].as_str().unwrap_or_default();
            let detail = format!("version {version}, pid {}", status["pid"]);
            if version == env!("CARGO_PKG_VERSION") {
                return Finding::good("daemon", detail);
            }
            Finding::bad("daemon", detail, OTHER_VERSION).optional()
        }
        Err(CommandFailure::Unreachable(error @ Unreachable::OlderVersion(_))) => {
            Finding::bad("daemon", error.to_string(), OTHER_VERSION).optional()
        }
        Err(CommandFailure::Unreachable(Unreachable::NotRunning(_))) => {
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
