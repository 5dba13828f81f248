//! `hivekeep config`.

use super::{CliContext, CommandFailure, output};

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
        return Ok(output::text(&crate::config::shipped())?);
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
