//! Processes that a machine cannot go on without: the other halves of its vhost-user devices.

use std::time::Duration;

use crate::handle::ProcessId;
use crate::host_env::HostEnv;
use crate::{Endpoint, MachineHandle};

/// Time for a machine that ends to end: its helpers may be gone before it.
const OWN_END: Duration = Duration::from_secs(2);
const KILL_WAIT: Duration = Duration::from_secs(10);

/// Ends a machine whose helper ended. QEMU cannot be given a new one, and the guest would wait for
/// the old one for ever; so its owner learns of it, by the last line of what it said.
pub(super) async fn end_with(host_env: HostEnv, machine: MachineHandle, helper: ProcessId) {
    let watcher = &host_env.watcher;
    let how = watcher.exited(helper).await;
    if tokio::time::timeout(OWN_END, watcher.exited(machine.process)).await.is_ok() {
        return;
    }
    let (name, pid) = (name(&machine, helper), machine.process.pid);
    tracing::warn!(pid, %how, "{name} ended; ending its machine");
    host_env.ends_for(&machine.workspace, format!("{name} ended ({how}), and the machine with it"));
    if let Err(error) = watcher.kill(machine.process, KILL_WAIT).await {
        tracing::error!(pid, %error, "machine without {name}");
    }
}

fn name(machine: &MachineHandle, helper: ProcessId) -> &'static str {
    let of_link = matches!(machine.endpoint, Endpoint::VhostUserVsock { .. });
    match of_link && machine.helpers.first() == Some(&helper) {
        true => "vhost-device-vsock, which carries its link,",
        false => "virtiofsd, which serves a volume,",
    }
}
