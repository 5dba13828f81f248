//! `hivekeep hook`.

use std::io::{self, Read};

use serde_json::json;

use super::{CliContext, CommandFailure, output, reach::Unreachable};
use crate::doors::{control::ControlMethod, parents};

/// Most bytes of an event that are read.
const MOST_BYTES: u64 = 64 << 20;

/// Serve a hook of an agent client, which calls this itself: see `hivekeep integrate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The hook.
    #[arg(value_enum)]
    hook: Hook,
}

/// A hook.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Hook {
    /// After a tool of the client's own: say what waits for its session, if anything does.
    Inbox,
}

pub(super) fn run(
    context: &CliContext,
    Args { hook: Hook::Inbox }: Args,
) -> Result<(), CommandFailure> {
    // A client that writes its event is not told that nobody reads it.
    io::copy(&mut io::stdin().lock().take(MOST_BYTES), &mut io::sink())?;
    let mut client = match context.client() {
        Ok(client) => client,
        Err(CommandFailure::Unreachable(Unreachable::NotRunning(_))) => return Ok(()),
        Err(error) => return Err(error),
    };
    let wanted = ControlMethod::Waiting { started_by: parents::ancestors() };
    let lines: Vec<String> = client.get_as(wanted)?;
    if lines.is_empty() {
        return Ok(());
    }
    let told = json!({
        "hookEventName": "PostToolUse",
        "additionalContext": lines.join("\n"),
    });
    Ok(output::json_line(&json!({ "hookSpecificOutput": told }))?)
}
