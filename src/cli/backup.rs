//! `hivekeep backup` and `hivekeep restore`.

use std::{fmt::Write as _, path::PathBuf};

use hivekeep_config::LoadedConfig;
use hivekeep_door_server::codes;
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_store::Journal;
use hivekeep_workspace::backup::Contents;

use super::{CliContext, CommandFailure, output, reach::Unreachable};
use crate::{
    backup::{self, ArchivedDisks, BackupSources, PackResult, RestoreTargets, Staging},
    control::{BackupMade, ControlMethod},
    daemon,
};

/// Keep a copy of the journal and the vault in a file, while the daemon runs or not.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The journal's copy is of one moment, was read back, and holds the sessions, teams, tasks,
workspaces and events. With --disks it holds the disks of virtual machines, too, as snapshots
froze them a moment before: machines go on meanwhile. Disks of sandboxes, memory of snapshots,
images and transferred files are not in it. FILE holds what the vault and the disks hold and
secrets of links: it is readable by its owner alone.

Examples:
  hivekeep backup /srv/backups/hivekeep-$(date +%F).tar.zst
  hivekeep backup /srv/backups/with-disks.tar.zst --disks      # while the daemon runs
  hivekeep restore /srv/backups/hivekeep-2026-11-23.tar.zst   # where there is no state yet")]
pub struct Args {
    /// The archive to make; it must not be there.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Keep the disks of virtual machines, too.
    #[arg(long)]
    disks: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let loaded = context.load()?;
    let packed = match context.client() {
        Ok(mut client) => {
            // Before anything is frozen for it.
            backup::free(&args.file)?;
            let waiting = output::spinner("the daemon copies its journal");
            // The folder is there until this connection ends.
            let made: BackupMade = client.first(ControlMethod::Backup { disks: args.disks })?;
            waiting.finish_and_clear();
            if args.disks && made.disks.is_none() {
                return Err(CommandFailure::Other(
                    "this daemon keeps no disks: update it".to_owned(),
                ));
            }
            let there = || client.get(ControlMethod::Status {}).is_ok();
            pack(&loaded, &args, made.journal, made.disks, there)?
        }
        Err(CommandFailure::Unreachable(Unreachable::NotRunning(_))) if args.disks => {
            return Err(CommandFailure::from(
                ToolError::new(Layer::Door, codes::DAEMON_NEEDED, "disks are frozen by the daemon")
                    .next("start the daemon first, or leave --disks out"),
            ));
        }
        Err(CommandFailure::Unreachable(Unreachable::NotRunning(_))) => alone(&loaded, &args)?,
        Err(error) => return Err(error),
    };
    if args.json {
        return Ok(output::json(&packed)?);
    }
    for path in &packed.left_out {
        eprintln!("hivekeep: left out, being neither file nor folder: {}", path.display());
    }
    let mut text = format!(
        "{}: {}, the journal and {} files of the vault\n",
        packed.file.display(),
        output::bytes(packed.bytes),
        packed.vault_files
    );
    if let Some(disks) = &packed.disks {
        text += &disks_in_words(disks);
    }
    Ok(output::text(&text)?)
}

/// Text for people: the workspaces whose disks are in a backup.
fn disks_in_words(disks: &ArchivedDisks) -> String {
    let names: Vec<_> = disks.kept.iter().map(|kept| kept.name.as_str()).collect();
    let mut text = match &*names {
        [] => "disks: none\n".to_owned(),
        names => format!("disks: {} ({})\n", names.len(), names.join(", ")),
    };
    for left in &disks.left_out {
        let _infallible =
            writeln!(text, "left out: the disk of {}: {} ({})", left.name, left.message, left.code);
    }
    if disks.memories_left_out > 0 {
        let count = disks.memories_left_out;
        let _infallible = writeln!(text, "left out: the memory of {count} snapshots");
    }
    text
}

fn pack(
    loaded: &LoadedConfig,
    args: &Args,
    journal: PathBuf,
    disks: Option<Contents>,
    there: impl FnOnce() -> bool,
) -> Result<PackResult, CommandFailure> {
    let vault = loaded.config.vault.folder(&loaded.folders.state);
    let vault = (loaded.config.vault.enabled && vault.is_dir()).then_some(vault);
    let bar = output::spinner("packing");
    let packed = backup::pack(&args.file, &BackupSources { journal, vault, disks }, &bar, there);
    bar.finish_and_clear();
    Ok(packed?)
}

/// Packs without a daemon: opens the journal as a daemon would.
fn alone(loaded: &LoadedConfig, args: &Args) -> Result<PackResult, CommandFailure> {
    let (folders, dir) = (&loaded.folders, loaded.folders.journal());
    if !dir.is_dir() {
        let text = format!("there is nothing to back up: {} is missing", dir.display());
        return Err(CommandFailure::Other(text));
    }
    let _lock = daemon::hold(folders)?;
    let options = hivekeep_store::Options { dir, ..loaded.config.store.clone() };
    let staging = Staging::make(&folders.state)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let to = staging.path().to_owned();
    runtime.block_on(async move {
        let (journal, _) = tokio::task::spawn_blocking(move || Journal::open(options))
            .await
            .map_err(|error| CommandFailure::Other(error.to_string()))?
            .map_err(backup::Error::from)?;
        let made = journal.backup(to).await;
        let _stopped = journal.close().await;
        Ok::<_, CommandFailure>(made.map_err(backup::Error::from)?)
    })?;
    pack(loaded, args, staging.path().to_owned(), None, || true)
}

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
pub struct RestoreArgs {
    /// An archive that `hivekeep backup` made.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn restore(context: &CliContext, args: RestoreArgs) -> Result<(), CommandFailure> {
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
        text += &disks_in_words(disks);
    }
    text += "Next: hivekeep daemon\n";
    Ok(output::text(&text)?)
}
