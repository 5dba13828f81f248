//! `hivekeep image list|inspect|rm|prune`: what is kept, what uses it, and its removal.

use std::time::Duration;

use hivekeep_image::{
    ImageName, ImageRow, ImageState, ImageStore, PruneTerms, PulledImage, RemovedImages,
};
use hivekeep_oci::{ImageOptions, ImagePuller};
use serde_json::{Value, json};

use super::super::{CommandFailure, output};
use super::{as_json, failed};

/// Prints all images.
pub(super) async fn list(store: &ImageStore, json: bool) -> Result<(), CommandFailure> {
    let mut rows = Vec::new();
    for image in store.list().await.map_err(failed)? {
        let use_of = match &image.state {
            ImageState::Pulled(pulled) => Some(ImageUse::of(store, pulled).await?),
            _ => None,
        };
        rows.push((image, use_of));
    }
    if json {
        let rows: Vec<_> = rows.iter().map(|(image, use_of)| row(image, use_of.as_ref())).collect();
        return Ok(output::json(&rows)?);
    }
    let rows: Vec<_> = rows.iter().map(|(image, use_of)| line(image, use_of.as_ref())).collect();
    Ok(output::text(&output::table(&["IMAGE", "STATE", "ABOUT"], &rows))?)
}

/// Prints one image.
pub(super) async fn inspect(
    store: &ImageStore,
    name: &str,
    json: bool,
) -> Result<(), CommandFailure> {
    let name = ImagePuller::name_of(name).map_err(refused)?;
    let images = store.list().await.map_err(failed)?;
    let image = images.into_iter().find(|image| image.name == name);
    let image = image.ok_or_else(|| CommandFailure::Other(format!("there is no image {name}")))?;
    let ImageState::Pulled(pulled) = &image.state else {
        return match json {
            true => Ok(output::json(&row(&image, None))?),
            false => Ok(output::text(&output::table(
                &["IMAGE", "STATE", "ABOUT"],
                &[line(&image, None)],
            ))?),
        };
    };
    let use_of = ImageUse::of(store, pulled).await?;
    if json {
        return Ok(output::json(&row(&image, Some(&use_of)))?);
    }
    let defaults = &pulled.defaults;
    let none = || "-".to_owned();
    let user = match &defaults.user {
        Some(user) if defaults.user_applies => user.clone(),
        Some(user) => format!("{user} (recorded: commands run as root)"),
        None => none(),
    };
    let words = |words: &[String]| if words.is_empty() { none() } else { words.join(" ") };
    let mut rows = vec![
        vec!["name".to_owned(), pulled.name.to_string()],
        vec!["from".to_owned(), pulled.reference.clone()],
        vec!["digest".to_owned(), pulled.digest.clone().unwrap_or_else(none)],
        vec!["pulled".to_owned(), pulled.pulled_at.format("%Y-%m-%d %H:%M UTC").to_string()],
        vec!["files".to_owned(), output::bytes(pulled.rootfs_tree.bytes)],
        vec!["on disk".to_owned(), output::bytes(use_of.bytes)],
        vec!["used by".to_owned(), words(&use_of.users)],
        vec!["user".to_owned(), user],
        vec!["directory".to_owned(), defaults.working_dir.clone().unwrap_or_else(none)],
        vec!["entry point".to_owned(), words(&defaults.entrypoint)],
        vec!["command".to_owned(), words(&defaults.command)],
    ];
    rows.extend(
        defaults
            .env
            .iter()
            .map(|(name, value)| vec!["environment".to_owned(), format!("{name}={value}")]),
    );
    if pulled.devices_left_out + pulled.xattrs_left_out > 0 {
        let (devices, xattrs) = (pulled.devices_left_out, pulled.xattrs_left_out);
        let text = format!("{devices} devices below dev/, {xattrs} extended attributes");
        rows.push(vec!["left out".to_owned(), text]);
    }
    Ok(output::text(&output::table(&["", ""], &rows))?)
}

/// Removes one image.
pub(super) async fn remove(
    store: &ImageStore,
    name: &str,
    json: bool,
) -> Result<(), CommandFailure> {
    let name = ImagePuller::name_of(name).map_err(refused)?;
    if !matches!(name, ImageName::Pulled(_)) {
        let text = format!(
            "{name} is built here and is renewed by building it; only pulled images are removed"
        );
        return Err(CommandFailure::Other(text));
    }
    let lock = store.lock().await.map_err(failed)?;
    told(&store.remove(&lock, name).await.map_err(failed)?, json)
}

/// Removes what nothing uses.
pub(super) async fn prune(
    store: &ImageStore,
    options: &ImageOptions,
    all: bool,
    json: bool,
) -> Result<(), CommandFailure> {
    let terms = options.prune_terms();
    let terms = if all { PruneTerms { age: Duration::ZERO, ..terms } } else { terms };
    let lock = store.lock().await.map_err(failed)?;
    told(&store.prune(&lock, terms).await.map_err(failed)?, json)
}

fn told(removed: &RemovedImages, json: bool) -> Result<(), CommandFailure> {
    let names: Vec<_> = removed.images.iter().map(ToString::to_string).collect();
    let (objects, bytes) = (removed.objects, removed.bytes);
    if json {
        return Ok(output::json(&json!({ "images": names, "objects": objects, "bytes": bytes }))?);
    }
    let mut text: String = names.iter().map(|name| format!("{name} is removed\n")).collect();
    text.push_str(&format!("{} are free again\n", output::bytes(bytes)));
    Ok(output::text(&text)?)
}

/// Room of an image and who uses it.
struct ImageUse {
    bytes: u64,
    users: Vec<String>,
}

impl ImageUse {
    async fn of(store: &ImageStore, image: &PulledImage) -> Result<Self, CommandFailure> {
        let bytes = store.bytes_on_disk(image.clone()).await.map_err(failed)?;
        let users = store.users_of(image).await.map_err(failed)?;
        Ok(Self { bytes, users: users.into_iter().collect() })
    }
}

fn line(image: &ImageRow, use_of: Option<&ImageUse>) -> Vec<String> {
    let name = image.name.to_string();
    let (state, about) = match &image.state {
        ImageState::Built(manifest) => {
            let tree = manifest.rootfs_tree.as_ref();
            let about = format!(
                "{}, {} packages, files of {}, initrd of {}, {}",
                manifest.debian_suite.as_str(),
                manifest.packages.len(),
                tree.map_or_else(|| "unknown size".to_owned(), |tree| output::bytes(tree.bytes)),
                output::bytes(manifest.initrd.bytes),
                manifest.built_at.format("%Y-%m-%d %H:%M UTC"),
            );
            ("built", about)
        }
        ImageState::Pulled(pulled) => {
            let users = use_of.map_or(0, |use_of| use_of.users.len());
            let about = format!(
                "files of {}, {} on disk, used by {users}, {}",
                output::bytes(pulled.rootfs_tree.bytes),
                output::bytes(use_of.map_or(0, |use_of| use_of.bytes)),
                pulled.pulled_at.format("%Y-%m-%d %H:%M UTC"),
            );
            ("pulled", about)
        }
        ImageState::NotBuilt => ("not built", format!("run `hivekeep image build {name}`")),
        ImageState::Unreadable { reason } => ("unreadable", reason.clone()),
    };
    vec![name, state.to_owned(), about]
}

fn row(image: &ImageRow, use_of: Option<&ImageUse>) -> Value {
    let name = image.name.as_str();
    match &image.state {
        ImageState::Built(built) => {
            json!({ "name": name, "state": "built", "manifest": as_json(built) })
        }
        ImageState::Pulled(pulled) => json!({
            "name": name, "state": "pulled", "manifest": as_json(pulled),
            "bytes_on_disk": use_of.map(|use_of| use_of.bytes),
            "used_by": use_of.map(|use_of| &use_of.users),
        }),
        ImageState::NotBuilt => json!({ "name": name, "state": "not_built" }),
        ImageState::Unreadable { reason } => {
            json!({ "name": name, "state": "unreadable", "reason": reason })
        }
    }
}

pub(super) fn refused(error: hivekeep_oci::Error) -> CommandFailure {
    CommandFailure::Other(error.to_string())
}
