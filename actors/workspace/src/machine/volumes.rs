//! A VM's volumes: mounted in its guest once it answers; limits of a machine that has some.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_link::{CallTerms, Link, LinkError};
use hivekeep_machine::{Isolation, VOLUME_TAG};
use hivekeep_protocol::{GuestCode, MountVolume};

use crate::{codes, records::Planned};

/// Time for the guest to load its driver and to mount, under emulation.
const PATIENCE: Duration = Duration::from_secs(30);

/// Has the guest mount the plan's volumes; those mounted already stay. A sandbox has its volumes
/// from its start.
///
/// # Errors
/// `volumes_unsupported` where the guest is of an earlier image, or its kernel has no driver.
pub(crate) async fn mount(link: &Link, plan: &Planned) -> Result<(), ToolError> {
    if plan.spec.isolation != Isolation::Vm {
        return Ok(());
    }
    for (n, volume) in plan.volumes.iter().enumerate() {
        let request = MountVolume {
            tag: format!("{VOLUME_TAG}{n}"),
            path: volume.path.clone(),
            read_only: volume.read_only,
        };
        let answer = link.ask(request, CallTerms::at_most(PATIENCE)).await;
        let is_driver = matches!(
            &answer,
            Err(LinkError::Guest(error)) if error.code == GuestCode::Unsupported
        );
        answer.map_err(|error| {
            let mut error = hivekeep_link::link_error(error);
            match error.layer {
                Layer::Guest if is_driver => {
                    let message = format!("this guest mounts no volumes: {}", error.message);
                    ToolError::new(Layer::Guest, codes::VOLUMES_UNSUPPORTED, message)
                        .next("run `hivekeep image build base`, whose kernel all machines boot")
                }
                Layer::Guest => {
                    error.message = format!("a volume's folder: {}", error.message);
                    error.next("choose a path without links and files on it")
                }
                _ => error,
            }
        })?;
    }
    Ok(())
}

/// Refuses a workspace with volumes; `why` is the message for the caller.
///
/// # Errors
/// `snapshot_unsupported`.
pub(crate) fn has_no_volumes(plan: &Planned, why: &str) -> Result<(), ToolError> {
    if plan.volumes.is_empty() {
        return Ok(());
    }
    Err(ToolError::new(Layer::Machine, codes::SNAPSHOT_UNSUPPORTED, why).next(
        "a snapshot of the disk alone is possible; or stop it and start it with an empty list \
         of volumes",
    ))
}
