//! Image build: decides what of an image is out of date and rebuilds it.

mod apt;
mod base;
mod debian;
mod elf;
mod etc;
mod ext4;
mod full;
mod initrd;
mod kernel;
pub(crate) mod run;
mod staged;

use std::fs;
use std::path::{Path, PathBuf};

use chrono::Utc;
use tokio_util::sync::CancellationToken;

pub(super) use full::make_ext4;

use crate::store::Inner;
use crate::{ContentHash, Error, ImageName, ImageStore, KernelChoice, Manifest, Result, Suite};

/// Version of this code's output; raised when the same inputs give something else, which makes
/// built images out of date.
const RECIPE_VERSION: u32 = 1;

/// Parameters of a build.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// Name of the image.
    pub name: ImageName,
    /// Kernel of the image.
    pub kernel: KernelChoice,
    /// Path of the guest daemon: a static x86-64 program.
    pub guest_binary: PathBuf,
    /// Debian suite that packages come from.
    pub suite: Suite,
    /// Fetch packages again even if nothing else changed; takes in security updates.
    pub refresh: bool,
}

/// Step of a build, reported when it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildStep {
    /// Number of the step, from 1.
    pub step: u32,
    /// Number of steps.
    pub steps: u32,
    /// Description of the step.
    pub message: String,
}

/// Result of a build.
#[derive(Debug, Clone)]
pub struct BuildResult {
    /// Manifest of the image as it is now.
    pub manifest: Manifest,
    /// Part that was rebuilt.
    pub change: RebuiltPart,
}

/// Part of an image that was rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebuiltPart {
    /// Nothing: the image was up to date, and its content was checked.
    Unchanged,
    /// The initrd only, for another guest binary.
    Initrd,
    /// Everything (a kernel that another image has already is shared).
    All,
}

/// Reporter of steps in order.
struct Steps<'a> {
    report: &'a (dyn Fn(BuildStep) + Send + Sync),
    step: u32,
    steps: u32,
}

impl Steps<'_> {
    fn next(&mut self, message: impl Into<String>) {
        self.step += 1;
        (self.report)(BuildStep { step: self.step, steps: self.steps, message: message.into() });
    }
}

/// Guest daemon that goes into the initrd.
struct Guest {
    bytes: Vec<u8>,
    hash: ContentHash,
}

/// Builds an image; see [`ImageStore::build`].
pub(super) async fn build(
    store: &ImageStore,
    request: BuildRequest,
    report: &(dyn Fn(BuildStep) + Send + Sync),
    cancel: &CancellationToken,
) -> Result<BuildResult> {
    if let ImageName::Pulled(_) = request.name {
        let known = ImageName::BUILT.map(|name| name.to_string()).join(", ");
        let asked = request.name.to_string();
        return Err(Error::Unknown { what: "image to build", asked, known });
    }
    let lock = store.blocking(Inner::lock).await?;
    let guest_binary = request.guest_binary.clone();
    let guest = store.blocking(move |_| read_guest(&guest_binary)).await?;
    let recipe = recipe(&request);
    let usable = if request.refresh {
        None
    } else {
        let name = request.name.clone();
        store.blocking(move |inner| usable(inner, &name, recipe)).await?
    };
    let built = match usable {
        Some(manifest) if manifest.guest_hash == guest.hash => {
            Ok(BuildResult { manifest, change: RebuiltPart::Unchanged })
        }
        Some(manifest) => {
            let mut steps = Steps { report, step: 0, steps: 1 };
            steps.next("initrd with the new guest daemon");
            renew_initrd(store, manifest, guest).await
        }
        None => full::build(store, &request, recipe, guest, report, cancel).await,
    };
    drop(lock);
    built
}

/// Hash of everything that decides an image's content, except the guest and new package versions.
fn recipe(request: &BuildRequest) -> ContentHash {
    let content = match &request.name {
        ImageName::Base => {
            format!("{} {}", base::PACKAGES.join(","), base::GIT_PROGRAMS.join(","))
        }
        ImageName::Debian => debian::PLAIN.recipe(),
        ImageName::CodeInterpreter => debian::CODE_INTERPRETER.recipe(),
        ImageName::Pulled(_) => String::new(),
    };
    let kernel = kernel::recipe(request.kernel, request.suite);
    let text = format!(
        "image {RECIPE_VERSION}\n{}\n{kernel}\n{}\n{content}\n{}",
        request.name,
        request.suite,
        ext4::SETTINGS
    );
    ContentHash::of(text.as_bytes())
}

/// Manifest of the present image, if it was made by this recipe and all of it is intact.
fn usable(inner: &Inner, name: &ImageName, recipe: ContentHash) -> Result<Option<Manifest>> {
    let manifest = match inner.manifest(name) {
        Ok(Some(manifest)) if manifest.recipe == recipe => manifest,
        // An unreadable manifest is repaired by building again.
        Ok(_) | Err(Error::Manifest { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let intact = || -> Result<()> {
        inner.verified.image(&inner.objects, manifest.clone())?;
        inner.verified.object(&inner.objects, &manifest.modules, name)?;
        if let Some(tree) = &manifest.rootfs_tree {
            inner.verified.tree(&inner.objects, tree, name)?;
        }
        Ok(())
    };
    match intact() {
        Ok(()) => Ok(Some(manifest)),
        Err(error @ (Error::Missing { .. } | Error::Corrupt { .. })) => {
            tracing::warn!(image = %name, %error, "building again");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn renew_initrd(store: &ImageStore, old: Manifest, guest: Guest) -> Result<BuildResult> {
    store
        .blocking(move |inner| {
            let modules = inner.objects.path(&old.modules);
            let modules = fs::read(&modules).map_err(Error::io("read", &modules))?;
            let initrd = initrd::assemble(&modules, &guest.bytes)?;
            let manifest = Manifest {
                built_at: Utc::now(),
                initrd: inner.objects.put_bytes(&initrd, "initrd", None)?,
                guest_hash: guest.hash,
                ..old
            };
            manifest.save(&inner.manifest_path(&manifest.name))?;
            Ok(BuildResult { manifest, change: RebuiltPart::Initrd })
        })
        .await
}

fn read_guest(path: &Path) -> Result<Guest> {
    let refuse = |reason: String| Error::GuestBinary { path: path.to_path_buf(), reason };
    let bytes = fs::read(path).map_err(|error| refuse(error.to_string()))?;
    match elf::is_static_program(&bytes) {
        Ok(true) => Ok(Guest { hash: ContentHash::of(&bytes), bytes }),
        Ok(false) => Err(refuse("it is not a static x86-64 program".to_owned())),
        Err(error) => Err(refuse(format!("it is not a 64-bit ELF: {error}"))),
    }
}

#[cfg(test)]
mod tests;
