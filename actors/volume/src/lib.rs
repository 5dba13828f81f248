//! Volumes: durable file systems of a bounded size that a user keeps beyond workspaces and sessions.
//!
//! A volume is an ext4 image behind a loop device (`images.rs`). Workspaces mount it as a folder, one or
//! several at a time, and `aegis.file.*` works in the same mount. It is an event-sourced log of an intent
//! and its end, so that a crash at any line is undone or finished by the next start; the mount belongs to
//! the host and goes on without the daemon. Which workspace has which volume is the workspace's record.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod images;
mod options;
mod ports;
mod tools;
mod volume;
mod volumes;

use std::sync::Arc;

use chrono::Utc;
use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_ports::{VolumeFiles, Volumes};
use hivekeep_runtime::{Daemon, Family, Finding, Host, Mounted};

pub use options::Options;
use volumes::VolumeService;

/// Family of volumes and the files in them. Offers [`Volumes`] and [`VolumeFiles`].
pub struct VolumeFamily;

impl Family for VolumeFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- aegis.volume.create makes storage that outlives workspaces; give it to them by `volumes` of \
workspace_create or workspace_start. aegis.file.* works on its files without a workspace.";

    const HOLDS: &'static [&'static str] = &[volumes::HELD_VOLUMES, volumes::HELD_MB];

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILIES.iter().flat_map(|family| family.rows).map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let service = Arc::new(VolumeService::open(daemon, options).await?);
        daemon.ports.offer::<dyn Volumes>(service.clone());
        daemon.ports.offer::<dyn VolumeFiles>(service.clone());
        let address = daemon.address("volumes", RestartPolicy::ENTITY);
        let expiry = daemon.address("volume-expiry", RestartPolicy::ENTITY);
        Ok(Mounted::default()
            .serving::<ServiceActor<VolumeService>>(&address, service.clone())
            .periodic(&expiry, volumes::LOOK_EVERY, service.clone(), |service| async move {
                service.tend(Utc::now()).await;
            })
            .tear_down(move || async move { service.unmount_all().await }))
    }

    async fn check(_: &Options, _: &Host) -> Vec<Finding> {
        let missing = images::missing();
        if missing.is_empty() {
            return vec![Finding::good("volumes", "ext4 images behind loop devices")];
        }
        let findings = missing.into_iter().map(|(what, remedy, package)| {
            Finding::bad("volumes", what, remedy).package(package).optional()
        });
        findings.collect()
    }
}

#[cfg(test)]
mod tests;
