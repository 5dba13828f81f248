//! `hivekeep daemon`.

use super::{CliContext, CommandFailure};
use crate::daemon::{self, StopMode};

/// Run the daemon in the foreground.
///
/// One daemon runs per run directory. SIGTERM and SIGINT stop it in order and
/// leave workspaces running; a second signal ends it at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep daemon
  hivekeep daemon --set daemon.log_level=debug
  systemctl start hivekeep          # with docs/hivekeep.service

Exit codes: 0 stopped in order, 2 configuration refused, 3 state unreadable
(nothing was changed), 4 another daemon runs, 1 anything else.")]
pub struct Args {
    /// Stop the workspaces when the daemon stops.
    #[arg(long)]
    stop_workspaces: bool,
    /// Lead a session of its own, apart from the terminal; used by `hivekeep mcp`.
    #[arg(long, hide = true)]
    detached: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    if args.detached {
        // Fails only for a process that leads one already.
        let _leader_already = rustix::process::setsid();
    }
    let mut loaded = context.load()?;
    if args.stop_workspaces {
        loaded.config.daemon.stop_workspaces = true;
    }
    let stopping = match loaded.config.daemon.stop_workspaces {
        true => StopMode::WithWorkspaces,
        false => StopMode::LeaveWorkspaces,
    };
    Ok(daemon::run(loaded, stopping)?)
}
