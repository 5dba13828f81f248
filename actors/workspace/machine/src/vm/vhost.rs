//! `vhost-device-vsock`: AF_VSOCK for a guest without help of the host's kernel.

use hivekeep_fs::remove_tree;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::folders::MachineFolders;
use crate::handle::ProcessId;
use crate::host_env::{self, HostEnv, Newborn};
use crate::options::MachineUser;
use crate::spawn::{self, Spawn};
use crate::{Error, MachinePlan, folders, tools};

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
    let program = tools::find(&host_env.options.vhost_device_vsock_path, REMEDY)?;
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
