//! `hivekeep integrate`.

use super::{CommandFailure, output};
use crate::integrate::{self, Client, Homes, Refused};

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
