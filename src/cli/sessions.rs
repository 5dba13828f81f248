//! `hivekeep sessions`.

use hivekeep_kernel::SessionId;
use serde_json::Value;

use super::{CliContext, CommandFailure, output};
use crate::doors::control::ControlMethod;

/// List the sessions of clients, or end one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep sessions
  hivekeep sessions --end ses_0192f0c1a2b37c4d8e5f60718293a4b5")]
pub struct Args {
    /// End this session: its workspaces go on, without an owner, and can be adopted.
    #[arg(long, value_name = "SESSION")]
    end: Option<SessionId>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let mut client = context.client()?;
    if let Some(session) = args.end {
        client.get(ControlMethod::EndSession { session })?;
        return Ok(());
    }
    let rows: Vec<Value> = client.get_as(ControlMethod::Sessions {})?;
    if args.json {
        return Ok(output::json(&rows)?);
    }
    // A column for each field that says something short.
    let mut columns: Vec<&str> = Vec::new();
    for row in rows.iter().filter_map(Value::as_object) {
        for (key, value) in row {
            if !value.is_object() && !columns.contains(&key.as_str()) {
                columns.push(key);
            }
        }
    }
    let cell = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let table: Vec<Vec<_>> =
        rows.iter().map(|row| columns.iter().map(|column| cell(&row[*column])).collect()).collect();
    let heads: Vec<_> = columns.iter().map(|column| column.to_uppercase()).collect();
    let heads: Vec<_> = heads.iter().map(String::as_str).collect();
    Ok(output::text(&output::table(&heads, &table))?)
}
