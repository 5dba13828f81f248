//! `hivekeep restore`.

use std::path::PathBuf;

use super::{CliContext, CommandFailure, output};
use crate::{
    backup::{self, RestoreTargets},
    daemon,
};

/// Make the state of a daemon from a backup, where there is no state yet.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The archive is verified whole before anything is written, and its journal opened before it is
put in place. Machines of another state folder are left alone: their workspaces come back as
crashed, and start only where their disks are: those that `hivekeep backup --disks` kept come back
with them. A disk stands on a file of its image, which is put into the image folder where it is
missing; the images themselves are built by `hivekeep image build`.

Examples:
  hivekeep restore /srv/backups/hivekeep-2026-11-23.tar.zst
  HIVEKEEP_HOME=/tmp/look hivekeep restore FILE    # to look into one, beside another daemon

Exit codes: 0 restored, 4 a daemon runs on this state, 1 anything else.")]
pub struct Args {
    /// An archive that `hivekeep backup` made.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let loaded = context.load()?;
    let _lock = daemon::hold(&loaded.folders)?;
    let state = loaded.folders.state.clone();
    let journal =
        hivekeep_store::Options { dir: loaded.folders.journal(), ..loaded.config.store.clone() };
    let vault = loaded.config.vault.folder(&state);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let images = hivekeep_workspace::image_dir(&loaded.config.workspace, &state);
    let places = RestoreTargets { state: state.clone(), journal, vault, images };
    let bar = output::spinner("reading the backup");
    let restored = runtime.block_on(backup::restore(&args.file, places, &bar))?;
    bar.finish_and_clear();
    if args.json {
        return Ok(output::json(&restored)?);
    }
    let mut text = format!(
        "{}: {} streams and {} files of the vault, as hivekeep {} had them\n",
        state.display(),
        restored.journal.streams,
        restored.vault_files,
        restored.made_by
    );
    if let Some(disks) = &restored.disks {
        text += &super::backup::disks_in_words(disks);
    }
    text += "Next: hivekeep daemon\n";
    Ok(output::text(&text)?)
}
