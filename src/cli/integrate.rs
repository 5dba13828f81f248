//! Agent clients: `hivekeep integrate` connects one, `hivekeep hook` serves its hooks.

use std::io::{self, Read};

use hivekeep_door_server::parents;
use serde_json::json;

use super::{CliContext, CommandFailure, output, reach::Unreachable};
use crate::{
    control::ControlMethod,
    integrate::{self, Client, Homes, Refused},
};

/// Connect an agent client with hivekeep: the MCP server in its configuration, and a skill.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints what it would change, as a diff, and changes it only with --yes. Everything else in a file
stays as it is; the file as it was is kept beside it.

Examples:
  hivekeep integrate codex             # show
  hivekeep integrate codex --yes       # do it
  hivekeep integrate codex --remove --yes")]
pub struct Args {
    /// The client.
    #[arg(value_enum)]
    client: Client,
    /// Make the changes.
    #[arg(long)]
    yes: bool,
    /// Take back what an earlier integration changed.
    #[arg(long)]
    remove: bool,
}

pub(super) fn run(args: Args) -> Result<(), CommandFailure> {
    let refused = |error: Refused| CommandFailure::Other(error.to_string());
    let homes = Homes::from_env().map_err(refused)?;
    let program = std::env::current_exe()?;
    let changes = match args.remove {
        true => integrate::disconnect(args.client, &homes, &program),
        false => integrate::connect(args.client, &homes, &program),
    };
    let changes = changes.map_err(refused)?;
    if changes.is_empty() {
        return Ok(output::text("nothing to change\n")?);
    }
    for change in &changes {
        output::text(&change.diff())?;
        if args.yes {
            change.apply().map_err(refused)?;
        }
    }
    for change in changes.iter().filter(|change| args.yes && change.has_backup()) {
        output::text(&format!("as it was: {}\n", change.backup().display()))?;
    }
    let next = match (args.yes, args.remove) {
        (false, _) => "nothing was changed: repeat it with --yes\n",
        (true, false) => "done: restart the client, or have it load its servers again\n",
        (true, true) => "done\n",
    };
    Ok(output::text(next)?)
}

/// Most bytes of an event that are read.
const MOST_BYTES: u64 = 64 << 20;

/// Serve a hook of an agent client, which calls this itself: see `hivekeep integrate`.
#[derive(Debug, clap::Args)]
pub struct HookArgs {
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

pub(super) fn hook(
    context: &CliContext,
    HookArgs { hook: Hook::Inbox }: HookArgs,
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
