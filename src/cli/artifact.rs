//! `hivekeep artifact`.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use hivekeep_artifact::{ArtifactInfo, artifact_id};
use hivekeep_door_server::plain;
use hivekeep_kernel::ArtifactId;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{CliContext, CommandFailure, client::Client, output};
use crate::control::ControlMethod;

/// List, fetch or remove results that were too large for their answers.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep artifact list
  hivekeep artifact get art_0192f0c1a2b37c4d8e5f60718293a4b5 | jq -r .stdout
  hivekeep artifact get hivekeep://artifacts/art_0192f0c1a2b37c4d8e5f60718293a4b5 -o result.json")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Get(GetArgs),
    Remove(RemoveArgs),
}

/// List the artifacts of all users, newest first.
#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Print an artifact, or write it to a file, which is there when it is whole and its SHA-256 is right.
#[derive(Debug, clap::Args)]
struct GetArgs {
    /// The artifact's id or URI.
    #[arg(value_parser = id)]
    artifact: ArtifactId,
    /// The file to write; one that is there is replaced.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Remove an artifact before it expires.
#[derive(Debug, clap::Args)]
struct RemoveArgs {
    /// The artifact's id or URI.
    #[arg(value_parser = id)]
    artifact: ArtifactId,
}

fn id(text: &str) -> Result<ArtifactId, String> {
    artifact_id(text).map_err(|error| error.message)
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let mut client = context.client()?;
    match args.command {
        Command::List(args) => list(&mut client, &args),
        Command::Get(GetArgs { artifact, output: None }) => {
            fetch(&mut client, artifact, &mut Terminal(io::stdout().lock()))
        }
        Command::Get(GetArgs { artifact, output: Some(file) }) => {
            write(&mut client, artifact, &file)
        }
        Command::Remove(RemoveArgs { artifact }) => {
            client.get(ControlMethod::RemoveArtifact { artifact }).map(drop)
        }
    }
}

fn list(client: &mut Client, args: &ListArgs) -> Result<(), CommandFailure> {
    let found: Vec<ArtifactInfo> = client.get_as(ControlMethod::Artifacts {})?;
    if args.json {
        return Ok(output::json(&found)?);
    }
    let row = |info: &ArtifactInfo| {
        vec![
            info.id.to_string(),
            info.user.to_string(),
            info.tool.clone(),
            output::bytes(info.bytes),
            info.created_at.format("%Y-%m-%d %H:%M:%S").to_string(),
            info.expires_at.format("%Y-%m-%d %H:%M:%S").to_string(),
        ]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    let heads = ["ARTIFACT", "USER", "TOOL", "SIZE", "KEPT AT", "EXPIRES AT"];
    Ok(output::text(&output::table(&heads, &rows))?)
}

/// Standard output. Results may say anything: what acts on a terminal is escaped, which leaves the same
/// JSON. A file gets the bytes as they are.
struct Terminal<W>(W);

impl<W: Write> Write for Terminal<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        self.0.write_all(plain::json(text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A file beside it first, so that nothing of this name is ever a part.
fn write(client: &mut Client, id: ArtifactId, file: &Path) -> Result<(), CommandFailure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut part = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    fetch(client, id, &mut part)?;
    part.as_file().sync_all()?;
    part.persist(file).map_err(|error| CommandFailure::from(error.error))?;
    Ok(hivekeep_fs::sync_parent(file)?)
}

/// Passes it on as it comes, and compares its digest at the end.
fn fetch(
    client: &mut Client,
    artifact: ArtifactId,
    to: &mut dyn Write,
) -> Result<(), CommandFailure> {
    let (mut info, mut hash) = (None::<ArtifactInfo>, Sha256::new());
    client.ask(ControlMethod::Artifact { artifact }, |item| {
        match item {
            Value::String(text) => {
                hash.update(&text);
                to.write_all(text.as_bytes())?;
            }
            about => info = serde_json::from_value(about).ok(),
        }
        Ok(())
    })?;
    to.flush()?;
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if info.is_none_or(|info| info.sha256 != digest) {
        return Err(CommandFailure::Other(format!("{artifact} is not what was kept: {digest}")));
    }
    Ok(())
}
