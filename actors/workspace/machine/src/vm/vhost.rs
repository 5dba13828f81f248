//! `vhost-device-vsock`: AF_VSOCK for a guest without help of the host's kernel; and the end of processes like it that a
//! machine cannot go on without, the other halves of its vhost-user devices.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hivekeep_fs::remove_tree;

use super::folders::MachineFolders;
use crate::folders;
use crate::handle::ProcessId;
use crate::host_env::{self, HostEnv, Newborn};
use crate::options::{self, MachineUser};
use crate::spawn::{self, Spawn};
use crate::{Endpoint, Error, MachineHandle, MachinePlan};

pub(super) const REMEDY: &str = "cargo install vhost-device-vsock";
/// Time that the helper may take to make its socket.
const START_WAIT: Duration = Duration::from_secs(5);

/// A running helper, and QEMU's connection to it.
pub(super) struct Helper {
    pub(super) process: ProcessId,
    pub(super) device: OwnedFd,
}

/// Path of the socket that the host connects to; the helper makes it.
pub(super) fn uds_path(folders: &MachineFolders) -> PathBuf {
    folders.vsock_dir().join("host")
}

/// Bytes that the guest may have on their way to the host: as many as the guest's own buffer,
/// Linux's default. More would stall: newer guest kernels never have more on the way than their own
/// buffer holds, while the helper frees room only once three quarters of this were used.
const TX_BUFFER_BYTES: u32 = 256 << 10;

/// Starts the helper as the machine's user, in a folder of that user, and connects to it.
pub(super) fn start(
    host_env: &HostEnv,
    plan: &MachinePlan,
    cid: u32,
    user: MachineUser,
    newborn: &mut Newborn,
) -> Result<Helper, Error> {
    let program = options::find_program(&host_env.options.vhost_device_vsock_path, REMEDY)?;
    let dir = plan.folders.vsock_dir();
    remove_tree(&dir).map_err(Error::io("remove", &dir))?;
    std::fs::create_dir(&dir).map_err(Error::io("make the folder", &dir))?;
    host_env::give(&dir, user)?;
    let device = dir.join("device");
    spawn::reachable(&device, user)?;
    let uds = uds_path(&plan.folders);
    let vm = format!(
        "guest-cid={cid},socket={},uds-path={},tx-buffer-size={TX_BUFFER_BYTES}",
        device.display(),
        uds.display()
    );
    let process = Spawn {
        program,
        args: vec!["--vm".into(), vm.into()],
        fds: Vec::new(),
        listen: Vec::new(),
        user,
        groups: Vec::new(),
        door: Default::default(),
        enclosure: None,
        stdout: spawn::append_log(&plan.folders.stderr_log())?,
        stderr: spawn::append_log(&plan.folders.stderr_log())?,
    }
    .start()?;
    newborn.add(process);
    let end = Instant::now() + START_WAIT;
    loop {
        match UnixStream::connect(&device) {
            Ok(stream) => return Ok(Helper { process, device: stream.into() }),
            Err(_) if process.verify().is_ok() && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(source) => {
                tracing::warn!(stderr = folders::stderr_tail(&plan.folders), "vhost-device-vsock");
                return Err(Error::io("connect to", &device)(source));
            }
        }
    }
}

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
