//! `hivekeep image`. Works on the image folder itself: building needs no daemon.

use std::{io::IsTerminal, path::PathBuf, time::Duration};

use clap::Subcommand;
use hivekeep_image::{
    BuildRequest, ImageName, ImageRow, ImageState, ImageStore, KernelChoice, Manifest, RebuiltPart,
    Suite,
};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{CliContext, CommandFailure, output};
use crate::doors::plain;

/// Build and list the images that workspaces boot from.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build an image, or what of it is out of date.
    #[command(after_help = "\
Examples:
  hivekeep image build base
  hivekeep image build debian --refresh
  hivekeep image build base --kernel small    # compiles a kernel: minutes")]
    Build(Build),
    /// List the images there can be.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Build {
    /// `base` (busybox, git) or `debian` (apt).
    #[arg(default_value = "base")]
    image: ImageName,
    /// `debian` (from its package) or `small` (compiled).
    #[arg(long, default_value = "debian", value_parser = parse::<KernelChoice>)]
    kernel: KernelChoice,
    /// The Debian release: `bookworm` or `trixie`.
    #[arg(long, default_value = "trixie", value_parser = parse::<Suite>)]
    suite: Suite,
    /// Fetch packages again, with their security updates.
    #[arg(long)]
    refresh: bool,
    /// The guest daemon's binary, instead of the configured one.
    #[arg(long, value_name = "FILE")]
    guest: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Names as they stand in manifests.
fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(Value::from(text)).map_err(|error| error.to_string())
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let loaded = context.load()?;
    let options = &loaded.config.workspace;
    let store = {
        let folder = hivekeep_workspace::image_dir(options, &loaded.folders.state);
        ImageStore::open(folder).map_err(failed)?
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match args.command {
        Command::List { json } => {
            let images = runtime.block_on(store.list()).map_err(failed)?;
            list(&images, json)
        }
        Command::Build(build) => {
            let guest_binary = match build.guest {
                Some(guest) => guest,
                None => hivekeep_workspace::guest_binary(options)?,
            };
            let request = BuildRequest {
                name: build.image,
                kernel: build.kernel,
                guest_binary,
                suite: build.suite,
                refresh: build.refresh,
            };
            runtime.block_on(make(&store, request, build.json))
        }
    }
}

async fn make(store: &ImageStore, request: BuildRequest, json: bool) -> Result<(), CommandFailure> {
    let cancel = CancellationToken::new();
    let on_interrupt = cancel.clone();
    let watch = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            on_interrupt.cancel();
        }
    });
    let spinner = std::io::stderr().is_terminal().then(|| {
        let spinner = ProgressBar::new_spinner();
        spinner.enable_steady_tick(Duration::from_millis(120));
        spinner
    });
    let report = |progress: hivekeep_image::BuildStep| {
        let line = format!("[{}/{}] {}", progress.step, progress.steps, progress.message);
        match &spinner {
            Some(spinner) => spinner.set_message(plain::line(&line).into_owned()),
            None => eprintln!("{}", plain::line(&line)),
        }
    };
    let built = store.build(request, &report, &cancel).await;
    watch.abort();
    if let Some(spinner) = &spinner {
        spinner.finish_and_clear();
    }
    let built = built.map_err(failed)?;
    let change = match built.change {
        RebuiltPart::Unchanged => "unchanged",
        RebuiltPart::Initrd => "initrd",
        RebuiltPart::All => "all",
    };
    if json {
        return Ok(output::json(
            &json!({ "change": change, "manifest": manifest(&built.manifest) }),
        )?);
    }
    let what = match built.change {
        RebuiltPart::Unchanged => "is up to date",
        RebuiltPart::Initrd => "has the new guest daemon",
        RebuiltPart::All => "is built",
    };
    Ok(output::text(&format!("{} {what}\n", built.manifest.name))?)
}

fn list(images: &[ImageRow], json: bool) -> Result<(), CommandFailure> {
    if json {
        let rows: Vec<_> = images.iter().map(row).collect();
        return Ok(output::json(&rows)?);
    }
    let rows: Vec<_> = images
        .iter()
        .map(|image| {
            let name = image.name.to_string();
            match &image.state {
                ImageState::Built(manifest) => vec![
                    name,
                    "built".to_owned(),
                    format!(
                        "{}, {} packages, files of {}, initrd of {}, {}",
                        manifest.debian_suite.as_str(),
                        manifest.packages.len(),
                        manifest.rootfs_tree.as_ref().map_or_else(
                            || "unknown size".to_owned(),
                            |tree| output::bytes(tree.bytes)
                        ),
                        output::bytes(manifest.initrd.bytes),
                        manifest.built_at.format("%Y-%m-%d %H:%M UTC"),
                    ),
                ],
                ImageState::NotBuilt => {
                    let remedy = format!("run `hivekeep image build {name}`");
                    vec![name, "not built".to_owned(), remedy]
                }
                ImageState::Unreadable { reason } => {
                    vec![name, "unreadable".to_owned(), reason.clone()]
                }
            }
        })
        .collect();
    Ok(output::text(&output::table(&["IMAGE", "STATE", "ABOUT"], &rows))?)
}

fn row(image: &ImageRow) -> Value {
    let name = image.name.as_str();
    match &image.state {
        ImageState::Built(built) => {
            json!({ "name": name, "state": "built", "manifest": manifest(built) })
        }
        ImageState::NotBuilt => json!({ "name": name, "state": "not_built" }),
        ImageState::Unreadable { reason } => {
            json!({ "name": name, "state": "unreadable", "reason": reason })
        }
    }
}

fn manifest(manifest: &Manifest) -> Value {
    serde_json::to_value(manifest).expect("a manifest is written as JSON anyway")
}

fn failed(error: hivekeep_image::Error) -> CommandFailure {
    CommandFailure::Other(error.to_string())
}
