//! Launch of a sandbox from a plan.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Deserialize;

use super::args::{self, Sandbox};
use super::{Layout, SandboxDriver, layout, overlay_dir};
use crate::cgroup::CgroupLimits;
use crate::console;
use crate::folders;
use crate::handle::{Endpoint, ProcessId, boot_id};
use crate::host_env::{HostEnv, Newborn};
use crate::options::MachineUser;
use crate::sandbox;
use crate::spawn::{self, Enclosure, Spawn};
use crate::{
    AppliedLimits, CarrierKind, Enforcement, Error, Isolation, LaunchedMachine, MachineHandle,
    MachinePlan,
};

/// Wait between the end of process 1 and that of bubblewrap's outer half.
pub(super) const OUTER_WAIT: Duration = Duration::from_secs(2);
/// Limit of bubblewrap's report, which is a few hundred bytes.
const INFO_BYTES: usize = 16 * 1024;

pub(super) async fn launch(
    driver: &SandboxDriver,
    plan: &MachinePlan,
) -> Result<LaunchedMachine, Error> {
    plan.check()?;
    if plan.nic.is_some() {
        return Err(Error::BadPlan("a sandbox has no network interface".into()));
    }
    if plan.carrier != CarrierKind::Unix {
        return Err(Error::BadPlan("a sandbox's carrier is its Unix socket".into()));
    }
    driver.host_env.check_limits()?;
    driver.check_landlock()?;
    let starter = Starter {
        host_env: driver.host_env.clone(),
        bwrap: driver.bwrap.clone(),
        guest: driver.guest.clone(),
        plan: plan.clone(),
    };
    // Runs to its end even if this future is dropped; its result then kills what it started.
    let started = tokio::task::spawn_blocking(move || starter.start());
    let started = started.await.map_err(Error::lost_task)?;
    let started = match started {
        Err(Failure::Refused(error)) => return Err(error),
        Err(Failure::Silent { outer, newborn }) => {
            return Err(why_silent(driver, plan, outer, newborn).await);
        }
        Ok(started) => started,
    };
    started.newborn.keep();
    Ok(LaunchedMachine { handle: started.handle, limits: started.limits })
}

/// Explains why bubblewrap did not report a process 1: it ended, or hangs.
async fn why_silent(
    driver: &SandboxDriver,
    plan: &MachinePlan,
    outer: ProcessId,
    newborn: Box<Newborn>,
) -> Error {
    let exited = driver.host_env.watcher.exited(outer);
    let exited = tokio::time::timeout(OUTER_WAIT, exited).await;
    drop(newborn);
    let stderr_tail = folders::stderr_tail(&plan.folders);
    match exited {
        Ok(how) => Error::DiedAtStart { how, stderr_tail },
        Err(_) => {
            let after = driver.host_env.options.launch_timeout();
            Error::StartTimeout { after, stderr_tail }
        }
    }
}

struct Started {
    newborn: Newborn,
    handle: MachineHandle,
    limits: AppliedLimits,
}

enum Failure {
    Refused(Error),
    /// No report came over the info descriptor.
    Silent {
        outer: ProcessId,
        newborn: Box<Newborn>,
    },
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Blocking part of a launch.
struct Starter {
    host_env: HostEnv,
    bwrap: PathBuf,
    guest: PathBuf,
    plan: MachinePlan,
}

impl Starter {
    fn start(self) -> Result<Started, Failure> {
        let plan = &self.plan;
        let options = &self.host_env.options;
        let machine = args::of(&self.host_env, plan)?;
        let user = machine.host;
        let tree = MachinePlan::image(&plan.images.rootfs_tree, "tree of its root file system")?;
        let own_tree = self.copy_of(tree, &machine)?;
        let tree = own_tree.as_deref().unwrap_or(tree);
        let overlay = overlay_dir(plan);
        let layout =
            user.switch.then(|| Layout::new(tree, &overlay, &self.guest, &machine)).transpose();
        let layout = layout.map_err(Error::io("map the ids of", tree))?;
        let layout = match layout {
            None if !plan.volumes.is_empty() => {
                return Err(Error::BadPlan("only root mounts volumes into sandboxes".into()).into());
            }
            layout => layout.map(|layout| layout.with_volumes(&plan.volumes, &machine)).transpose(),
        };
        let layout = layout.map_err(Error::io("mount volumes for", tree))?;
        let mut newborn = Newborn::new(&self.host_env, &plan.workspace);
        let limits = CgroupLimits {
            memory_bytes: Some(plan.memory_mb << 20),
            vcpus: plan.vcpus,
            pids: options.sandbox_max_processes,
        };
        let group = self.host_env.cgroups.create(&plan.workspace, &limits);
        if options.cgroup_required {
            group.require()?;
        }
        let link_path = plan.folders.link_socket();
        let link = folders::bind(&link_path)?;
        let console = console::make_pipe(&plan.folders.console_pipe())?;
        let (info, info_writer) = pipe_with(PipeFlags::CLOEXEC)
            .map_err(|error| Error::io("make a pipe for", &self.bwrap)(error.into()))?;
        let sandbox = Sandbox {
            guest: if user.switch { Path::new(layout::GUEST) } else { &self.guest },
            tree: if user.switch { Path::new(layout::TREE) } else { tree },
            overlay: if user.switch { Path::new(layout::OVERLAY) } else { &overlay },
            link_fd: link.as_raw_fd(),
            info_fd: info_writer.as_raw_fd(),
            console_fd: console.as_raw_fd(),
            // Uid in the numbers of the namespace that bubblewrap is started in.
            peer_uid: match &machine.within {
                Some(_) => 0,
                None => rustix::process::geteuid().as_raw(),
            },
            max_processes: options.sandbox_max_processes,
            inotify_instances: if user.switch { None } else { inotify_share() },
        };
        let outer = Spawn {
            program: self.bwrap.clone(),
            args: args::command_line(plan, &sandbox),
            listen: vec![link.as_raw_fd()],
            fds: vec![link, info_writer, console],
            user,
            groups: Vec::new(),
            door: group.door()?,
            enclosure: layout.map(Enclosure::Sandbox),
            // Output of bubblewrap and the guest daemon before any untrusted program runs.
            stdout: spawn::append_log(&plan.folders.stderr_log())?,
            stderr: spawn::append_log(&plan.folders.stderr_log())?,
        }
        .start()?;
        newborn.add(outer);
        let Some(process) = read_info(info, options.launch_timeout()) else {
            return Err(Failure::Silent { outer, newborn: Box::new(newborn) });
        };
        newborn.add(process);
        let endpoint = Endpoint::Unix { path: link_path, peer_uid: user.uid };
        let handle = self.handle(process, outer, user, group.dirs.clone(), endpoint);
        let why = "the overlay shares the host's file system".into();
        let limits = group.applied(Enforcement::No { why });
        Ok(Started { newborn, handle, limits })
    }

    /// Copy of the tree for a subordinate user.
    fn copy_of(&self, tree: &Path, machine: &args::User) -> Result<Option<PathBuf>, Error> {
        let (Some(within), Ok(users)) = (&machine.within, &self.host_env.subordinates) else {
            return Ok(None);
        };
        let disk = &self.plan.folders.disk_dir;
        let disks = disk.parent().unwrap_or(disk);
        let copy = sandbox::tree_of(users, within, tree, disks);
        copy.map(Some).map_err(Error::io("copy for the sandbox's user", tree))
    }

    fn handle(
        &self,
        process: ProcessId,
        outer: ProcessId,
        user: MachineUser,
        cgroup_dirs: Vec<PathBuf>,
        endpoint: Endpoint,
    ) -> MachineHandle {
        MachineHandle {
            workspace: self.plan.workspace.clone(),
            isolation: Isolation::Sandbox,
            process,
            helpers: vec![outer],
            boot_id: boot_id(),
            uuid: self.plan.uuid,
            uid: user.uid,
            folders: self.plan.folders.clone(),
            cgroup_dirs,
            endpoint,
            memory: None,
            nic: false,
        }
    }
}

/// Returns a sandbox's share of the few inotify instances that the daemon's user may have.
fn inotify_share() -> Option<u32> {
    let most = std::fs::read_to_string("/proc/sys/user/max_inotify_instances").ok()?;
    Some((most.trim().parse::<u32>().ok()? / 4).max(1))
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Info {
    child_pid: i32,
}

/// Reads the pid of process 1 from bubblewrap's JSON; `None` if bubblewrap ends or reports nothing
/// in time.
fn read_info(info: OwnedFd, timeout: Duration) -> Option<ProcessId> {
    let end = Instant::now() + timeout;
    let mut info = File::from(info);
    let mut text = Vec::new();
    loop {
        let left = end.checked_duration_since(Instant::now())?;
        let left = Timespec::try_from(left).ok()?;
        let ready = rustix::event::poll(&mut [PollFd::new(&info, PollFlags::IN)], Some(&left));
        if ready.ok()? == 0 {
            return None;
        }
        let mut buffer = [0; 1024];
        let count = info.read(&mut buffer).ok()?;
        text.extend_from_slice(&buffer[..count]);
        if let Ok(info) = serde_json::from_slice::<Info>(&text) {
            return ProcessId::of_pid(info.child_pid).ok();
        }
        if count == 0 || text.len() > INFO_BYTES {
            return None;
        }
    }
}
