//! `hivekeep tools`.

use std::path::{Path, PathBuf};

use hivekeep_registry::{Catalogue, ToolView, docs, kind, mcp_listing, mcp_tool};
use serde_json::Value;

use super::{CommandFailure, output};

/// List the tools, or explain one. Works without a daemon.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep tools
  hivekeep tools --family execution
  hivekeep tools exec               # what it does and what it takes
  hivekeep tools --json             # as MCP lists them, with all schemas")]
pub struct Args {
    /// Explain this tool.
    tool: Option<String>,
    /// Only tools of this family.
    #[arg(long, value_name = "FAMILY")]
    family: Vec<String>,
    /// Print MCP tool objects as JSON.
    #[arg(long)]
    json: bool,
    /// Write one page per family, and an index, into this folder.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["tool", "family", "json"])]
    write: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> Result<(), CommandFailure> {
    let catalogue = crate::daemon::catalogue();
    if let Some(folder) = &args.write {
        return Ok(write_pages(&catalogue, folder)?);
    }
    let toolsets = (!args.family.is_empty()).then_some(args.family);
    let view = ToolView { toolsets, output_schemas: true, ..ToolView::operator() };
    catalogue.check(&view)?;
    if let Some(name) = &args.tool {
        let entry = catalogue.find(name).ok_or_else(|| unknown(&catalogue, name))?;
        if args.json {
            return Ok(output::json(&mcp_tool(entry, &view))?);
        }
        return Ok(output::text(&explain(entry))?);
    }
    if args.json {
        return Ok(output::json(&mcp_listing(&catalogue, &view))?);
    }
    let mut text = String::new();
    for family in catalogue.families().into_iter().filter(|family| view.has_family(family)) {
        let rows: Vec<_> = catalogue
            .visible(&view)
            .filter(|entry| entry.spec.family == family)
            .map(|entry| vec![format!("  {}", entry.name()), entry.spec.title.to_owned()])
            .collect();
        text.push_str(&format!("{family}\n"));
        // The table without its head.
        text.extend(output::table(&["", ""], &rows).lines().skip(1).flat_map(|line| [line, "\n"]));
    }
    Ok(output::text(&text)?)
}

fn write_pages(catalogue: &Catalogue, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    docs(catalogue).into_iter().try_for_each(|(file, page)| std::fs::write(folder.join(file), page))
}

/// The failure of a name that no tool has.
pub(super) fn unknown(catalogue: &Catalogue, name: &str) -> CommandFailure {
    let nearest = catalogue.nearest(name, &ToolView::operator());
    let hint = match nearest.is_empty() {
        true => "see `hivekeep tools`".to_owned(),
        false => format!("did you mean {}?", nearest.join(" or ")),
    };
    CommandFailure::Usage(format!("there is no tool `{name}`: {hint}"))
}

/// A tool's description and parameters.
pub(super) fn explain(entry: &hivekeep_registry::ToolEntry) -> String {
    let spec = entry.spec;
    let mut text =
        format!("{}: {}\n\n{}\n\nParameters:\n", spec.name, spec.title, entry.description);
    let schema = &entry.input_schema;
    let required = |name: &str| {
        schema["required"].as_array().is_some_and(|keys| keys.iter().any(|key| key == name))
    };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        // A property that may be null may be left out.
        let kind = kind(property, schema).replace('`', "").replace(" or null", "");
        let standing = if required(name) {
            "required".to_owned()
        } else {
            match property.get("default") {
                None | Some(Value::Null) => "optional".to_owned(),
                Some(value) => format!("default {value}"),
            }
        };
        text.push_str(&format!("  {name} ({kind}, {standing})\n"));
        for line in property["description"].as_str().unwrap_or_default().lines() {
            text.push_str(&format!("      {line}\n"));
        }
    }
    text.push_str(&format!("\nExample:\n  hivekeep call {}", spec.name));
    for (name, _) in schema["properties"].as_object().into_iter().flatten() {
        if required(name) {
            text.push_str(&format!(" --arg {name}=..."));
        }
    }
    text.push('\n');
    text
}
