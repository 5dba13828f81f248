//! `hivekeep man`.

use std::{io, path::PathBuf};

use super::CommandFailure;

/// Print the manual page, or write one for each command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep man | man -l -
  hivekeep man --dir /usr/local/share/man/man1")]
pub struct Args {
    /// Write `hivekeep.1` and a page for each command into this folder.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: Args, command: clap::Command) -> Result<(), CommandFailure> {
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
