//! `hivekeep completions`.

use std::io;

use super::CommandFailure;

/// Print completions for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  hivekeep completions bash > ~/.local/share/bash-completion/completions/hivekeep")]
pub struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

pub(super) fn run(args: Args, command: &mut clap::Command) -> Result<(), CommandFailure> {
    // Into memory first: the generator panics on a broken pipe.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, command, "hivekeep", &mut text);
    io::Write::write_all(&mut io::stdout().lock(), &text)?;
    Ok(())
}
