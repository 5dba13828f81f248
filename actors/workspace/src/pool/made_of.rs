//! A digest of what a machine of the pool would be made from now.

use hivekeep_kernel::{ToolError, ports::NetworkMode};

use crate::{
    machine::images::image_name,
    pool::{MadeOf, WorkspaceSpec},
    shared::Shared,
};

/// The digest of what a machine would be made from now. Reads file stamps; reads the image's content the
/// first time only.
///
/// # Errors
/// When the image is not there or not whole.
pub(crate) async fn made_of(shared: &Shared, spec: &WorkspaceSpec) -> Result<MadeOf, ToolError> {
    let name = image_name(&spec.image)?;
    let image = shared.images.resolve(name).await?;
    let driver = shared.driver(spec.isolation)?;
    let facts = driver.facts();
    let mut digest = blake3::Hasher::new();
    let mut add = |part: &[u8]| {
        digest.update(&(part.len() as u64).to_le_bytes());
        digest.update(part);
    };
    add(env!("CARGO_PKG_VERSION").as_bytes());
    // Objects are named by their content.
    for path in [image.kernel(), image.initrd(), Some(image.rootfs())].into_iter().flatten() {
        add(path.as_os_str().as_encoded_bytes());
    }
    if let Some(defaults) = image.defaults() {
        add(format!("{defaults:?}").as_bytes());
    }
    add(facts.program.as_bytes());
    add(facts.carrier.as_str().as_bytes());
    add(format!("{:?}", facts.accelerator).as_bytes());
    // A memory that was saved without an interface gets none later.
    add(match shared.network.mode().await? {
        NetworkMode::Bridge => b"bridge",
        NetworkMode::User { .. } => b"user",
        NetworkMode::Off { .. } => b"off",
    });
    // The guest daemon may be installed anew under a daemon that runs.
    if let Ok(guest) = tokio::fs::metadata(&shared.options.driver.guest_path).await {
        use std::os::unix::fs::MetadataExt;
        let stamp = [guest.dev(), guest.ino(), guest.size(), guest.mtime() as u64];
        stamp.iter().for_each(|part| add(&part.to_le_bytes()));
        add(&guest.mtime_nsec().to_le_bytes());
    }
    Ok(MadeOf(digest.finalize().to_hex()[..32].to_owned()))
}
