//! `hivekeep ps`.

mod tree;

use std::time::Duration;

use hivekeep_kernel::ActorRow;

use super::{CliContext, CommandFailure, output};
use crate::doors::control::ControlMethod;

/// Show the supervision tree as it lives.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep ps
  hivekeep ps --watch
  hivekeep ps --json | jq '.[] | select(.restarts > 0)'")]
pub struct Args {
    /// Show it again and again, until interrupted.
    #[arg(long, short)]
    watch: bool,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 1.0, value_name = "SECS", requires = "watch")]
    every: f64,
    /// Print JSON; with `--watch`, a line for each look.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    // Below this the looking would be the load.
    let pause = Duration::try_from_secs_f64(args.every.max(0.1))
        .map_err(|error| CommandFailure::Usage(format!("--every: {error}")))?;
    let paint = output::Paint::stdout();
    loop {
        // A connection a look: one that is idle meanwhile may lose its place to another.
        let rows: Vec<ActorRow> = context.client()?.get_as(ControlMethod::Ps {})?;
        match (args.json, args.watch) {
            (true, true) => output::json_line(&rows)?,
            (true, false) => output::json(&rows)?,
            // Home, the new picture line by line, then what is left of the old.
            (false, true) => {
                let picture = tree::draw(&rows, paint).replace('\n', "\x1b[K\n");
                output::painted(&format!("\x1b[H{picture}\x1b[J"))?;
            }
            (false, false) => output::painted(&tree::draw(&rows, paint))?,
        }
        if !args.watch {
            return Ok(());
        }
        std::thread::sleep(pause);
    }
}
