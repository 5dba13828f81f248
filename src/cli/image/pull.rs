//! `hivekeep image pull`, and `build --from`.

use std::io::IsTerminal;

use hivekeep_image::ImageStore;
use hivekeep_oci::{Asker, ImageOptions, ImagePuller, ImageSource, PullProgress, PullRequest};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::super::{CommandFailure, output};
use super::{as_json, kept::refused};

/// Pulls an image and says how far that is.
pub(super) async fn pull(
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
            let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
