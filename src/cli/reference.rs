//! Reference pages of the program: `hivekeep tools`, `errors`, `completions` and `man`. None needs a daemon.

use std::{
    fmt::Write,
    io,
    path::{Path, PathBuf},
};

use hivekeep_door_server::codes;
use hivekeep_kernel::ErrorCode;
use hivekeep_registry::{Catalogue, ToolView, docs, kind, mcp_listing, mcp_tool};
use serde_json::{Value, json};

use super::{CommandFailure, output};

/// List the tools, or explain one. Works without a daemon.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep tools
  hivekeep tools --family execution
  hivekeep tools exec               # what it does and what it takes
  hivekeep tools --json             # as MCP lists them, with all schemas")]
pub struct ToolsArgs {
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

pub(super) fn tools(args: ToolsArgs) -> Result<(), CommandFailure> {
    let catalogue = hivekeep_config::families::catalogue();
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

/// List the error codes, or explain one. Works without a daemon.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep errors
  hivekeep errors inbox_full        # what it means, why it happens, what to do
  hivekeep errors --json")]
pub struct ErrorsArgs {
    /// Explain this code.
    code: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write a page of all codes, as Markdown, to this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["code", "json"])]
    write: Option<PathBuf>,
}

pub(super) fn errors(args: ErrorsArgs) -> Result<(), CommandFailure> {
    let mut all = codes::all();
    if let Some(file) = args.write {
        return Ok(std::fs::write(file, page(&all))?);
    }
    if let Some(name) = &args.code {
        all.retain(|code| code.name == name);
    }
    match (all.as_slice(), args.json, &args.code) {
        ([], _, code) => {
            let code = code.as_deref().unwrap_or_default();
            let message = format!("there is no error code `{code}`: see `hivekeep errors`");
            Err(CommandFailure::Usage(message))
        }
        ([code], true, Some(_)) => Ok(output::json(&data(code))?),
        (_, true, _) => Ok(output::json(&all.iter().map(|code| data(code)).collect::<Vec<_>>())?),
        ([code], false, Some(_)) => Ok(output::text(&explained(code))?),
        (_, false, _) => {
            let row = |code: &&ErrorCode| vec![code.name.to_owned(), code.meaning.to_owned()];
            let rows: Vec<_> = all.iter().map(row).collect();
            Ok(output::text(&output::table(&["CODE", "MEANING"], &rows))?)
        }
    }
}

fn data(code: &ErrorCode) -> serde_json::Value {
    let ErrorCode { name, meaning, cause, next_step } = code;
    json!({ "code": name, "meaning": meaning, "cause": cause, "next_step": next_step })
}

fn explained(code: &ErrorCode) -> String {
    let ErrorCode { name, meaning, cause, next_step } = code;
    format!("{name}: {meaning}\n\nUsual cause:  {cause}\nWhat to do:   {next_step}\n")
}

fn page(all: &[&ErrorCode]) -> String {
    let mut page = "# Error codes\n\nGenerated from the declarations; do not edit. \
        `hivekeep errors CODE` explains one on the command line.\n"
        .to_owned();
    for ErrorCode { name, meaning, cause, next_step } in all {
        let _ = write!(page, "\n## {name}\n\n{meaning}\n\n");
        let _ = write!(page, "- **Usual cause:** {cause}\n- **What to do:** {next_step}\n");
    }
    page
}

/// Print completions for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  hivekeep completions bash > ~/.local/share/bash-completion/completions/hivekeep")]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

pub(super) fn completions(
    args: CompletionsArgs,
    command: &mut clap::Command,
) -> Result<(), CommandFailure> {
    // Into memory first: the generator panics on a broken pipe.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, command, "hivekeep", &mut text);
    io::Write::write_all(&mut io::stdout().lock(), &text)?;
    Ok(())
}

/// Print the manual page, or write one for each command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep man | man -l -
  hivekeep man --dir /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Write `hivekeep.1` and a page for each command into this folder.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn man(args: ManArgs, command: clap::Command) -> Result<(), CommandFailure> {
    match args.dir {
        Some(dir) => {
            std::fs::create_dir_all(&dir)?;
            clap_mangen::generate_to(command, dir)?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            io::Write::write_all(&mut io::stdout().lock(), &page)?;
        }
    }
    Ok(())
}
