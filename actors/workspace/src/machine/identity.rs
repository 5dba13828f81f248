//! The guest's identity, given at its start and changed in a copy of another machine, and the volumes
//! that it mounts.

use std::time::{Duration, Instant};

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_link::{CallTerms, Link, LinkError};
use hivekeep_machine::{Isolation, VOLUME_TAG};
use hivekeep_protocol::{Configure, GuestCode, MountVolume, Reidentify, TasksKeep};

use crate::{codes, records::Planned};

/// Time for the guest to take its host name, clock and disk size. Growing a file
/// system to 100 GiB under emulation takes seconds.
const CONFIGURE_PATIENCE: Duration = Duration::from_secs(60);
/// Time for the guest to write its new identity to its disk.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most that the guest's clock may be off afterwards, besides the time that the answer takes.
const CLOCK_TOLERANCE_MS: i64 = 1_000;
/// Longest answer that leaves the guest's clock right: it was set somewhere between question and answer.
const CLOCK_SLACK: Duration = Duration::from_millis(500);
/// Attempts to set the clock with an answer within the slack.
const CLOCK_ATTEMPTS: u32 = 3;
/// Time for the guest to load its driver and to mount, under emulation.
const MOUNT_PATIENCE: Duration = Duration::from_secs(30);

/// Gives the guest its own name, machine id, clock, seed and link token, and checks its answer. Before that a fork that
/// is to keep its source's tasks is told so.
///
/// # Errors
/// `guest_not_itself` when the guest kept something of the machine it was copied from.
pub(super) async fn reidentify(link: &Link, plan: &Planned) -> Result<(), ToolError> {
    if plan.fork.as_ref().is_some_and(|fork| fork.keeps_tasks) {
        let request = TasksKeep { machine_id: plan.uuid.simple().to_string() };
        let kept = link.ask(request, CallTerms::at_most(PATIENCE)).await;
        kept.map_err(hivekeep_link::link_error)?;
    }
    let mut entropy = vec![0; 64];
    getrandom::fill(&mut entropy)
        .map_err(|error| ToolError::internal(format!("no entropy: {error}")))?;
    let machine_id = plan.uuid.simple().to_string();
    let now_ms = || chrono::Utc::now().timestamp_millis();
    let request = Reidentify {
        token_hash: plan.token.hash(),
        hostname: plan.name.to_string(),
        machine_id: machine_id.clone(),
        instance_id: uuid::Uuid::new_v4().to_string(),
        clock_unix_ms: u64::try_from(now_ms()).unwrap_or_default(),
        entropy,
    };
    let instance_id = request.instance_id.clone();
    let (asked_ms, asked_at) = (now_ms(), Instant::now());
    let is =
        link.ask(request, CallTerms::at_most(PATIENCE)).await.map_err(hivekeep_link::link_error)?;
    let kept = match () {
        () if is.hostname != plan.name.as_str() => "its host name",
        () if is.machine_id != machine_id => "its machine id",
        () if is.instance_id != instance_id => "its instance id",
        () if !(asked_ms - CLOCK_TOLERANCE_MS..=now_ms() + CLOCK_TOLERANCE_MS)
            .contains(&is.clock_unix_ms) =>
        {
            "its clock"
        }
        () if is.entropy_bytes == 0 => "its random seed",
        // The first answer after a resume is slow where many machines resume at once.
        () if asked_at.elapsed() > CLOCK_SLACK => return configure(link, plan, false).await,
        () => return Ok(()),
    };
    let message = format!("the guest kept {kept} of the machine it was copied from");
    Err(ToolError::new(Layer::Guest, codes::GUEST_NOT_ITSELF, message)
        .next("workspace_logs shows the guest's console"))
}

/// Gives the guest its name, clock and entropy, grows its disk if `grow_root`, and checks its
/// answer. Asks again, with the time as it is then, when the answer was too slow for the clock.
pub(crate) async fn configure(
    link: &Link,
    plan: &Planned,
    mut grow_root: bool,
) -> Result<(), ToolError> {
    for _ in 0..CLOCK_ATTEMPTS {
        let asked_at = Instant::now();
        configure_once(link, plan, grow_root).await?;
        if asked_at.elapsed() <= CLOCK_SLACK {
            return Ok(());
        }
        grow_root = false;
    }
    tracing::warn!(workspace = %plan.name, "the guest answers slowly; its clock may be late");
    Ok(())
}

async fn configure_once(link: &Link, plan: &Planned, grow_root: bool) -> Result<(), ToolError> {
    let mut entropy = vec![0; 64];
    getrandom::fill(&mut entropy)
        .map_err(|error| ToolError::internal(format!("no entropy: {error}")))?;
    let request = Configure {
        hostname: plan.name.to_string(),
        clock_unix_ms: u64::try_from(chrono::Utc::now().timestamp_millis()).ok(),
        entropy,
        grow_root,
    };
    let configured = link
        .ask(request, CallTerms::at_most(CONFIGURE_PATIENCE))
        .await
        .map_err(hivekeep_link::link_error)?;
    if configured.hostname != plan.name.as_str() {
        return Err(ToolError::new(
            Layer::Guest,
            codes::GUEST_NOT_CONFIGURED,
            "the guest kept another host name",
        ));
    }
    if let Some(error) = configured.grow_error {
        let message = format!("the disk could not be grown to {} GiB: {error}", plan.spec.disk_gb);
        return Err(ToolError::new(Layer::Guest, codes::DISK_NOT_GROWN, message)
            .next("workspace_logs shows the guest's console"));
    }
    Ok(())
}

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
        let answer = link.ask(request, CallTerms::at_most(MOUNT_PATIENCE)).await;
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
