//! The agent's role: from options to a running daemon.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::agent::{Agent, SHUTDOWN_STATUS};
use crate::args::{AgentArgs, LinkPort};
use crate::carrier::{unix::Unix, virtio::Virtio, vsock::Vsock};
use crate::settings::AgentSettings;
use crate::sys::{heap, signals, stdio};

/// Threads for disks at once: a guest has few CPUs and one disk.
const BLOCKING_THREADS: usize = 4;
/// How long the link's device may take to appear.
const DEVICE_WAIT: Duration = Duration::from_secs(10);

/// Any role's failure to start; said and then the process ends.
pub type RoleFailure = Box<dyn std::error::Error>;

/// The daemon's runtime: one thread, and a few for disks.
///
/// # Errors
/// When the kernel has no epoll or threads left.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS).build()
}

/// Runs the daemon until the host orders a shutdown.
///
/// # Errors
/// When it cannot start.
pub fn agent(args: AgentArgs) -> Result<ExitCode, RoleFailure> {
    heap::keep_freed_memory();
    signals::restore_defaults();
    stdio::close_on_exec();
    let inherited = match args.link {
        LinkPort::UnixFd(fd) => Some(stdio::inherited(fd)?),
        _ => None,
    };
    let runtime = runtime()?;
    runtime.block_on(async {
        let agent = Agent::start(AgentSettings {
            token_hash: args.token_hash,
            exe: Path::new("/proc/self/exe").to_path_buf(),
            state_dir: args.state_dir,
            run_dir: args.run_dir,
            place: args.place,
            cgroup_root: args.cgroup_root,
        })
        .await?;
        match (args.link, inherited) {
            (LinkPort::Virtio, _) => agent.serve(Virtio::open(DEVICE_WAIT).await?).await,
            (LinkPort::Vsock(cids), _) => {
                agent.serve(Vsock::bind(crate::carrier::vsock::PORT, cids)?).await;
            }
            (LinkPort::UnixPath(path), _) => agent.serve(Unix::bind(&path, args.peer_uids)?).await,
            (LinkPort::UnixFd(_), Some(fd)) => {
                agent.serve(Unix::inherited(fd, args.peer_uids)?).await;
            }
            (LinkPort::UnixFd(_), None) => {}
        }
        Ok::<_, RoleFailure>(())
    })?;
    runtime.shutdown_background();
    Ok(ExitCode::from(SHUTDOWN_STATUS))
}
