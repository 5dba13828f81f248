//! `hivekeep ingest`.

use std::path::{Path, PathBuf};

use hivekeep_kernel::ProgressUpdate;
use serde_json::{Map, Value, json};

use super::{CliContext, CommandFailure, call::Bar, output};
use crate::{
    config::Config,
    doors::{control::ControlMethod, plain},
};

/// Ingest a folder or a file into a collection, to be asked with `hivekeep ask`.
///
/// It has to be in a folder that `session.places` opens. Repeating it brings the collection up to date; what has
/// not changed is not embedded again. Ctrl-C leaves what is done.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep ingest docs
  hivekeep ingest docs --collection handbook --recreate
  hivekeep ingest notes/2026 --place notes    # a path in a place
  hivekeep ingest docs --watch                # and what changes from now on

Exit code 1 when it did not come to its end, 5 when no daemon runs.")]
pub struct Args {
    /// Folder or file of this host; with `--place` a path in that place.
    folder: PathBuf,
    /// The collection, by default the folder's name.
    #[arg(long, short)]
    collection: Option<String>,
    /// Empty the collection first.
    #[arg(long)]
    recreate: bool,
    /// The place: a name in `session.places`, or `volume:LABEL`.
    #[arg(long)]
    place: Option<String>,
    /// Stay, and ingest what changes, until `--watch=false`.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    watch: Option<bool>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: &Args) -> Result<(), CommandFailure> {
    let (place, path) = match &args.place {
        Some(place) => (place.clone(), args.folder.to_string_lossy().into_owned()),
        None => placed(&context.load()?.config, &args.folder)?,
    };
    let name = || {
        let folder = std::path::absolute(&args.folder).unwrap_or_else(|_| args.folder.clone());
        folder.file_name().map(|name| name.to_string_lossy().into_owned())
    };
    let collection = args.collection.clone().or_else(name);
    let collection =
        collection.ok_or_else(|| CommandFailure::Usage("name a --collection".to_owned()))?;
    let input = object(
        json!({ "path": path, "place": place, "collection": collection, "recreate": args.recreate, "watch": args.watch }),
    );
    let bar = Bar::new();
    let wanted =
        ControlMethod::Call { tool: "rag_ingest".to_owned(), args: input, timeout_ms: None };
    let outcome = context.client()?.ask(wanted, |item| {
        if let Ok(update) = serde_json::from_value::<ProgressUpdate>(item) {
            bar.show(&update);
        }
        Ok(())
    });
    bar.clear();
    let done = outcome?;
    if args.json {
        return Ok(output::json(&done)?);
    }
    Ok(output::text(&picture(&done))?)
}

fn picture(done: &Value) -> String {
    let text = |value: &Value| plain::line(value.as_str().unwrap_or_default()).into_owned();
    let mut told = format!("{}: {}\n", text(&done["collection"]), text(&done["message"]));
    let named = ["failed", "left_out"].map(|key| done[key].as_array().into_iter().flatten());
    for failed in named.into_iter().flatten() {
        told.push_str(&format!("  {}: {}\n", text(&failed["path"]), text(&failed["why"])));
    }
    told
}

/// Place that a path of the host is in, and the path in it. The innermost one is taken.
fn placed(config: &Config, path: &Path) -> Result<(String, String), CommandFailure> {
    let real = path.canonicalize()?;
    let places = config.session.places.iter().filter_map(|(name, place)| {
        let root = place.folder.canonicalize().ok()?;
        let below = real.strip_prefix(&root).ok()?.to_str()?.to_owned();
        Some((root.components().count(), name, below))
    });
    let Some((_, name, below)) = places.max_by_key(|(depth, ..)| *depth) else {
        let known: Vec<_> = config.session.places.keys().map(String::as_str).collect();
        let why = format!(
            "{} is in no folder that sessions may read; `session.places.NAME.folder` opens one (there are: {})",
            real.display(),
            if known.is_empty() { "none".to_owned() } else { known.join(", ") }
        );
        return Err(CommandFailure::Usage(why));
    };
    let path = if below.is_empty() { ".".to_owned() } else { below };
    Ok((name.clone(), path))
}

/// Input of a tool.
pub(super) fn object(input: Value) -> Map<String, Value> {
    match input {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
