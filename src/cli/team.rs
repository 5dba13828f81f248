//! `hivekeep team`.

mod board;
mod feed;
mod screen;
mod view;

use std::io::{self, IsTerminal};

use super::{CliContext, CommandFailure, output};

/// Watch a team of workspaces.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Watch(Watch),
}

/// Show a team's members, their messages and their tasks as they move.
///
/// Any team can be watched, whichever session made it. Nothing is taken out of an inbox, and what
/// messages and tasks say is not shown. `q` or Ctrl-C leaves.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep team watch crew
  hivekeep team watch crew --once   # a picture as text, as when standard output is no terminal")]
struct Watch {
    /// The team's name.
    name: String,
    /// Print one picture as text and leave.
    #[arg(long)]
    once: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let Action::Watch(Watch { name, once }) = args.action;
    let reach = context.reach(&context.load()?);
    if once || !io::stdout().is_terminal() {
        return Ok(output::text(&view::text(&feed::once(&reach, &name)?))?);
    }
    screen::live(reach, name)
}
