//! `hivekeep stop`.

use std::time::{Duration, Instant};

use super::{CliContext, CommandFailure, client::Client, reach::Unreachable};
use crate::doors::control::ControlMethod;

/// Stop the daemon in order; workspaces are left running.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep stop                     # workspaces go on, and are taken up again
  hivekeep stop --stop-workspaces")]
pub struct Args {
    /// Stop the workspaces too.
    #[arg(long)]
    stop_workspaces: bool,
    /// How long to wait for the daemon's end, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECS")]
    wait_secs: u64,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let loaded = context.load()?;
    let mut client = match Client::connect(&context.reach(&loaded)) {
        Ok(client) => client,
        Err(Unreachable::NotRunning(_)) => {
            eprintln!("hivekeep: no daemon runs");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let pid = client.welcome.pid;
    client.get(ControlMethod::Stop { workspaces: args.stop_workspaces.then_some(true) })?;
    // The lock is let go of by the kernel at the very end of the process.
    let (lock, until) =
        (loaded.folders.lock_file(), Instant::now() + Duration::from_secs(args.wait_secs));
    while is_held(&lock) {
        if Instant::now() >= until {
            return Err(CommandFailure::Other(format!(
                "the daemon (pid {pid}) is still stopping after {} s; see `hivekeep logs`",
                args.wait_secs
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn is_held(lock: &std::path::Path) -> bool {
    let Ok(file) = std::fs::File::open(lock) else { return false };
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
}
