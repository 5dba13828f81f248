//! `hivekeep image`. Works on the image folder itself: building and pulling need no daemon.

mod kept;

use std::{io::IsTerminal, path::PathBuf, time::Duration};

use clap::Subcommand;
use hivekeep_door_server::plain;
use hivekeep_image::{BuildRequest, ImageName, ImageStore, KernelChoice, RebuiltPart, Suite};
use hivekeep_kernel::lock;
use hivekeep_oci::{Asker, ImageOptions, ImagePuller, ImageSource, PullProgress, PullRequest};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::kept::refused;
use super::{CliContext, CommandFailure, output};

/// Build, pull, list and remove the images that workspaces boot from.
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
  hivekeep image build base --kernel small    # compiles a kernel: minutes
  hivekeep image build --from docker-archive:app.tar --name app")]
    Build(Build),
    /// Pull a container image, also when one of its name is here.
    #[command(after_help = "\
Examples:
  hivekeep image pull docker.io/library/python:3.12
  hivekeep image pull ghcr.io/OWNER/APP@sha256:... --name app
  hivekeep image pull oci:FOLDER:TAG --name app
  hivekeep image pull docker-archive:FILE --name app")]
    Pull {
        /// A registry's image with its registry, `oci:PATH[:TAG]` or `docker-archive:PATH`.
        #[arg(value_name = "REF")]
        reference: String,
        /// Keep it under this name instead of its reference.
        #[arg(long)]
        name: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the images that are here and those that can be built.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show one image: where it is from, what it says about commands, what uses it.
    Inspect {
        /// Its name or reference.
        #[arg(value_name = "IMAGE")]
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove a pulled image that no workspace uses.
    Rm {
        /// Its name or reference.
        #[arg(value_name = "IMAGE")]
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove pulled images and files that nothing uses, by the age and the free room in `[workspace.images]`.
    Prune {
        /// Whatever their age.
        #[arg(long)]
        all: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Build {
    /// `base` (busybox, git), `debian` (apt) or `code-interpreter` (Debian with Python, for run_code).
    #[arg(default_value = "base", conflicts_with = "from")]
    image: ImageName,
    /// Take this container image instead, as `pull` does.
    #[arg(long, value_name = "REF")]
    from: Option<String>,
    /// Name of what is taken by --from.
    #[arg(long, requires = "from")]
    name: Option<String>,
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
        Command::List { json } => runtime.block_on(kept::list(&store, json)),
        Command::Inspect { name, json } => runtime.block_on(kept::inspect(&store, &name, json)),
        Command::Rm { name, json } => runtime.block_on(kept::remove(&store, &name, json)),
        Command::Prune { all, json } => {
            runtime.block_on(kept::prune(&store, &options.images, all, json))
        }
        Command::Pull { reference, name, json } => {
            runtime.block_on(pull(&store, options.images.clone(), &reference, name, json))
        }
        Command::Build(Build { from: Some(from), name, json, .. }) => {
            runtime.block_on(pull(&store, options.images.clone(), &from, name, json))
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
            &json!({ "change": change, "manifest": as_json(&built.manifest) }),
        )?);
    }
    let what = match built.change {
        RebuiltPart::Unchanged => "is up to date",
        RebuiltPart::Initrd => "has the new guest daemon",
        RebuiltPart::All => "is built",
    };
    Ok(output::text(&format!("{} {what}\n", built.manifest.name))?)
}

fn as_json(manifest: &impl serde::Serialize) -> Value {
    serde_json::to_value(manifest).expect("a manifest is written as JSON anyway")
}

fn failed(error: hivekeep_image::Error) -> CommandFailure {
    CommandFailure::Other(error.to_string())
}

/// Pulls an image and says how far that is.
async fn pull(
    store: &ImageStore,
    options: ImageOptions,
    reference: &str,
    name: Option<String>,
    json: bool,
) -> Result<(), CommandFailure> {
    let source = ImageSource::parse(reference).map_err(refused)?;
    let cancel = CancellationToken::new();
    let on_interrupt = cancel.clone();
    let watch = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            on_interrupt.cancel();
        }
    });
    let bar = std::io::stderr().is_terminal().then(bar);
    let last = std::sync::Mutex::new("");
    let tell = |progress: PullProgress| match &bar {
        Some(bar) => draw(bar, &progress),
        // Each step once, where nobody sees a line change.
        None => {
            let step = step(&progress);
            let mut last = lock(&last);
            if *last != step {
                eprintln!("{step}");
                *last = step;
            }
        }
    };
    let request = PullRequest { source, name, asker: Asker::Operator };
    let pulled = ImagePuller::new(store.clone(), options).pull(request, &tell, &cancel).await;
    watch.abort();
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let pulled = pulled.map_err(refused)?;
    if json {
        return Ok(output::json(&json!({ "manifest": as_json(&pulled) }))?);
    }
    let (files, digest) = (output::bytes(pulled.rootfs_tree.bytes), pulled.digest.as_deref());
    let digest = digest.map(|digest| format!(", {digest}")).unwrap_or_default();
    Ok(output::text(&format!("{} is pulled: files of {files}{digest}\n", pulled.name))?)
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(std::time::Duration::from_millis(120));
    bar
}

fn draw(bar: &ProgressBar, progress: &PullProgress) {
    let bytes = |template: &str| {
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
    };
    match progress {
        PullProgress::Fetching { bytes: done, total } => {
            bytes("{spinner} {msg} {bytes}/{total_bytes} {wide_bar} {eta}");
            bar.set_length(*total);
            bar.set_position(*done);
        }
        PullProgress::Unpacking { bytes: done } => {
            bytes("{spinner} {msg} {bytes}");
            bar.set_position(*done);
        }
        PullProgress::Waiting | PullProgress::Storing => bytes("{spinner} {msg}"),
    }
    bar.set_message(step(progress));
}

fn step(progress: &PullProgress) -> &'static str {
    match progress {
        PullProgress::Waiting => "waiting for another build or pull",
        PullProgress::Fetching { .. } => "fetching layers",
        PullProgress::Unpacking { .. } => "unpacking layers",
        PullProgress::Storing => "making the disk",
    }
}
