//! `hivekeep errors`.

use std::{fmt::Write, path::PathBuf};

use hivekeep_kernel::ErrorCode;
use serde_json::json;

use super::{CommandFailure, output};
use crate::codes;

/// List the error codes, or explain one. Works without a daemon.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep errors
  hivekeep errors inbox_full        # what it means, why it happens, what to do
  hivekeep errors --json")]
pub struct Args {
    /// Explain this code.
    code: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write a page of all codes, as Markdown, to this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["code", "json"])]
    write: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> Result<(), CommandFailure> {
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
