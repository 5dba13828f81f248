//! Fake driver, for every test that needs machines but no processes.

mod snapshots;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use async_trait::async_trait;
use hivekeep_kernel::lock;
use hivekeep_link::fake::FakeGuest;
use hivekeep_ports::ForwardedPort;
use tokio::sync::watch;
use uuid::Uuid;

use super::handle::{ProcessId, boot_id};

use super::{
    AcceleratorKind, AppliedLimits, Capabilities, CapabilitySupport, CarrierKind, Driver,
    DriverFacts, Endpoint, Enforcement, Error, ExitHow, Images, Isolation, LaunchedMachine,
    LogsOnDiscard, MachineExit, MachineFolders, MachineHandle, MachineLogs, MachinePlan,
    MachineUsage, RamLocation, ReattachError, Snapshots,
};

/// Images that `TEST_HIVEKEEP_IMAGES` names, or the reason why there are none.
#[cfg(test)]
pub(super) fn images() -> Result<hivekeep_image::ImageStore, String> {
    let root = std::env::var_os("TEST_HIVEKEEP_IMAGES");
    let root = root.ok_or("TEST_HIVEKEEP_IMAGES is not set: use `cargo xtask test`")?;
    hivekeep_image::ImageStore::open(root.into()).map_err(|error| error.to_string())
}

/// Image `base` of [`images`].
#[cfg(test)]
pub(super) async fn image() -> Result<hivekeep_image::VerifiedImage, String> {
    let image = images()?.resolve(hivekeep_image::ImageName::Base).await;
    image.map_err(|error| error.to_string())
}

/// Drop guard that kills a real machine when its test ends.
#[cfg(test)]
pub(super) struct EndsWithTest(Vec<ProcessId>);

#[cfg(test)]
impl EndsWithTest {
    pub(super) fn of(handle: &MachineHandle) -> Self {
        Self(std::iter::once(&handle.process).chain(&handle.helpers).copied().collect())
    }
}

#[cfg(test)]
impl Drop for EndsWithTest {
    fn drop(&mut self) {
        for process in &self.0 {
            // Kills only the very process: its pid may be another's by now.
            if let Ok(process) = super::process::Pinned::open(*process) {
                let _gone_already = process.signal(rustix::process::Signal::KILL);
            }
        }
    }
}

/// Makes a small valid plan with its folders under `root`: `run/ID`, `disk/ID`, `log/ID`.
pub fn plan(workspace: &str, root: &Path) -> MachinePlan {
    MachinePlan {
        workspace: workspace.to_owned(),
        name: "golden".into(),
        is_fork: false,
        uuid: Uuid::from_u128(0x6a0e0f4c_3f5e_4f0e_9d8b_2f6f0b6f7a11),
        slot: 0,
        vcpus: 1,
        memory_mb: 256,
        disk_gb: 1,
        images: Images::default(),
        folders: MachineFolders {
            run_dir: root.join("run").join(workspace),
            disk_dir: root.join("disk").join(workspace),
            log_dir: root.join("log").join(workspace),
        },
        disk: None,
        token_hash_hex: "ab".repeat(32),
        hostname: "golden".into(),
        carrier: CarrierKind::VirtioSerial,
        cid: None,
        nic: None,
        several_users: false,
        volumes: Vec::new(),
    }
}

/// Driver of machines that do not exist, with controls for tests.
pub struct FakeDriver {
    isolation: Isolation,
    facts: DriverFacts,
    capabilities: Capabilities,
    state: Mutex<State>,
    guest: Option<FakeGuest>,
    /// Names of calls that are blocked.
    held: watch::Sender<HashSet<&'static str>>,
    /// Number of calls so far.
    count: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    calls: Vec<String>,
    machines: HashMap<String, watch::Sender<Option<MachineExit>>>,
    failures: Vec<Error>,
    boot_failures: usize,
    reattach_failures: Vec<ReattachError>,
    kills_refused: bool,
    guests: HashMap<String, tokio::task::AbortHandle>,
    save_failures: Vec<Error>,
    turn_failures: Vec<Error>,
    forward_failures: Vec<Error>,
    paused: HashSet<String>,
    /// Stopped machines, and whether there is room by now.
    starved: HashMap<String, bool>,
    tops: HashMap<String, PathBuf>,
    next_pid: i32,
}

impl FakeDriver {
    /// Makes a driver of the given isolation, with no machine running.
    pub fn new(isolation: Isolation) -> Self {
        let support = match isolation {
            Isolation::Vm => CapabilitySupport::Yes,
            Isolation::Sandbox => {
                CapabilitySupport::no("a sandbox is processes, not a machine with memory")
            }
        };
        let facts = DriverFacts {
            accelerator: AcceleratorKind::Tcg,
            accelerator_why: "fake".into(),
            program: "fake".into(),
            carrier: CarrierKind::Unix,
            cgroup: None,
            cannot: Vec::new(),
            confinement: None,
        };
        let capabilities = Capabilities {
            memory_snapshots: support.clone(),
            own_kernel: support.clone(),
            disk_limit: support.clone(),
            several_users: support.clone(),
            volumes: support,
        };
        let (held, count) = (watch::channel(HashSet::new()).0, watch::channel(0).0);
        Self { isolation, facts, capabilities, state: Mutex::default(), guest: None, held, count }
    }

    /// Puts this guest behind each machine's socket.
    pub fn with_guests(mut self, guest: FakeGuest) -> Self {
        self.guest = Some(guest);
        self
    }

    /// Calls so far, such as `launch ws_1`.
    pub fn calls(&self) -> Vec<String> {
        lock(&self.state).calls.clone()
    }

    /// Makes the next launch fail with this.
    pub fn fail_next_launch(&self, error: Error) {
        lock(&self.state).failures.push(error);
    }

    /// Makes the next machines end as soon as they run, before their guests answer.
    pub fn end_next_boots(&self, boots: usize) {
        lock(&self.state).boot_failures = boots;
    }

    /// Makes the next re-attachment fail with this, whether or not the machine runs.
    pub fn fail_next_reattach(&self, gone: ReattachError) {
        lock(&self.state).reattach_failures.push(gone);
    }

    /// Makes the next change of forwards fail with this.
    pub fn fail_next_forwards(&self, error: Error) {
        lock(&self.state).forward_failures.push(error);
    }

    /// Blocks calls of this name, such as `launch`, until they are unblocked.
    pub fn hold(&self, call: &'static str, hold: bool) {
        self.held.send_modify(|held| {
            let _was_so = if hold { held.insert(call) } else { held.remove(call) };
        });
    }

    /// Waits for such a call, as [`FakeDriver::calls`] names it, after the first `seen` ones.
    pub async fn called(&self, call: &str, seen: usize) {
        let mut count = self.count.subscribe();
        let there = count.wait_for(|_| self.calls().iter().skip(seen).any(|is| is == call));
        let _the_driver_is_here = there.await.is_ok();
    }

    /// Makes running machines withstand a kill.
    pub fn refuse_kills(&self, refuse: bool) {
        lock(&self.state).kills_refused = refuse;
    }

    /// Ends a machine as if it had crashed. False if it does not run.
    pub fn crash(&self, workspace: &str, how: ExitHow) -> bool {
        let stderr_tail = "fake crash".to_owned();
        let exit = MachineExit { how, at: chrono::Utc::now(), stderr_tail };
        let mut state = lock(&self.state);
        if let Some(guest) = state.guests.remove(workspace) {
            guest.abort();
        }
        match state.machines.get(workspace) {
            Some(machine) if machine.borrow().is_none() => {
                machine.send_replace(Some(exit));
                true
            }
            _ => false,
        }
    }

    /// True while the machine runs.
    pub fn is_running(&self, workspace: &str) -> bool {
        lock(&self.state).machines.get(workspace).is_some_and(|machine| machine.borrow().is_none())
    }

    /// Stops a machine at a write that does not fit on the disk: connections to its guest are
    /// refused.
    pub fn starve(&self, workspace: &str) {
        let mut state = lock(&self.state);
        state.starved.insert(workspace.to_owned(), false);
        if let Some(guest) = state.guests.remove(workspace) {
            guest.abort();
        }
    }

    /// Makes room again: the machine continues when it is resumed.
    pub fn make_room(&self, workspace: &str) {
        lock(&self.state).starved.insert(workspace.to_owned(), true);
    }

    /// Starts the guest behind a machine's socket, if there are guests.
    fn serve(&self, workspace: &str, socket: &Path) -> Result<(), Error> {
        let Some(guest) = &self.guest else { return Ok(()) };
        let _there_was_none = std::fs::remove_file(socket);
        let serving = guest.clone().listen(socket).map_err(Error::io("listen at", socket))?;
        lock(&self.state).guests.insert(workspace.to_owned(), serving.abort_handle());
        Ok(())
    }

    fn with_interface(&self, handle: &MachineHandle) -> Result<(), Error> {
        let none = || Error::NoInterface { workspace: handle.workspace.clone() };
        handle.nic.then_some(()).ok_or_else(none)
    }

    fn note(&self, call: &str, workspace: &str) {
        lock(&self.state).calls.push(format!("{call} {workspace}"));
        self.count.send_modify(|count| *count += 1);
    }

    /// Waits while calls of this name are blocked.
    async fn held(&self, call: &'static str) {
        let mut held = self.held.subscribe();
        let _the_driver_is_here = held.wait_for(|held| !held.contains(call)).await.is_ok();
    }
}

#[async_trait]
impl Driver for FakeDriver {
    fn isolation(&self) -> Isolation {
        self.isolation
    }

    fn facts(&self) -> &DriverFacts {
        &self.facts
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn prepare(&self, plan: &MachinePlan) -> Result<(), Error> {
        self.note("prepare", &plan.workspace);
        plan.check()?;
        match self.isolation {
            Isolation::Vm => snapshots::make_layer(&plan.disk().top, plan.disk_gb),
            Isolation::Sandbox => Ok(()),
        }
    }

    async fn launch(&self, plan: &MachinePlan) -> Result<LaunchedMachine, Error> {
        self.note("launch", &plan.workspace);
        self.held("launch").await;
        let mut state = lock(&self.state);
        if let Some(error) = state.failures.pop() {
            return Err(error);
        }
        drop(state);
        if self.guest.is_some() {
            let made = std::fs::create_dir_all(&plan.folders.run_dir);
            made.map_err(Error::io("make the folder", &plan.folders.run_dir))?;
        }
        let ends = lock(&self.state).boot_failures > 0;
        if !ends {
            self.serve(&plan.workspace, &plan.folders.link_socket())?;
        }
        let mut state = lock(&self.state);
        state.starved.remove(&plan.workspace);
        state.machines.insert(plan.workspace.clone(), watch::channel(None).0);
        state.next_pid += 1;
        // Pid beyond the kernel's largest: never a real process.
        let process = ProcessId { pid: 0x4000_0000 + state.next_pid, start_ticks: 1 };
        let path = plan.folders.link_socket();
        let handle = MachineHandle {
            workspace: plan.workspace.clone(),
            isolation: self.isolation,
            process,
            helpers: Vec::new(),
            boot_id: boot_id(),
            uuid: plan.uuid,
            uid: rustix::process::geteuid().as_raw(),
            folders: plan.folders.clone(),
            cgroup_dirs: Vec::new(),
            endpoint: Endpoint::Unix { path, peer_uid: rustix::process::geteuid().as_raw() },
            memory: (self.isolation == Isolation::Vm)
                .then(|| snapshots::held(plan, RamLocation::Shared { fd: 3 })),
            nic: plan.nic.is_some(),
        };
        state.paused.remove(&plan.workspace);
        state.tops.insert(plan.workspace.clone(), plan.disk().top);
        drop(state);
        if ends {
            lock(&self.state).boot_failures -= 1;
            self.crash(&plan.workspace, ExitHow::Exited { code: 0 });
        }
        let no = || Enforcement::No { why: "fake".into() };
        let limits = AppliedLimits { memory: no(), cpu: no(), pids: no(), disk: no() };
        Ok(LaunchedMachine { handle, limits })
    }

    async fn reattach(&self, handle: &MachineHandle) -> Result<(), ReattachError> {
        self.note("reattach", &handle.workspace);
        self.held("reattach").await;
        if let Some(gone) = lock(&self.state).reattach_failures.pop() {
            return Err(gone);
        }
        if self.is_running(&handle.workspace) {
            Ok(())
        } else {
            Err(ReattachError::Ended { pid: handle.process.pid })
        }
    }

    async fn watch(&self, handle: &MachineHandle) -> MachineExit {
        let exit = lock(&self.state).machines.get(&handle.workspace).map(watch::Sender::subscribe);
        let told = match exit {
            Some(mut exit) => exit.wait_for(Option::is_some).await.ok().and_then(|e| e.clone()),
            None => None,
        };
        told.unwrap_or_else(|| MachineExit {
            how: ExitHow::Unknown,
            at: chrono::Utc::now(),
            stderr_tail: String::new(),
        })
    }

    async fn power_down(&self, handle: &MachineHandle) -> Result<(), Error> {
        self.note("power_down", &handle.workspace);
        let gone = ReattachError::Ended { pid: handle.process.pid };
        self.crash(&handle.workspace, ExitHow::Exited { code: 0 }).then_some(()).ok_or(gone.into())
    }

    async fn kill(&self, handle: &MachineHandle) -> Result<(), Error> {
        self.note("kill", &handle.workspace);
        if lock(&self.state).kills_refused && self.is_running(&handle.workspace) {
            let after = std::time::Duration::from_secs(10);
            return Err(Error::Unkillable { pid: handle.process.pid, after });
        }
        self.crash(&handle.workspace, ExitHow::Signaled { signal: 9 });
        Ok(())
    }

    async fn release(&self, plan: &MachinePlan) -> Result<(), Error> {
        self.note("release", &plan.workspace);
        self.held("release").await;
        lock(&self.state).machines.remove(&plan.workspace);
        Ok(())
    }

    async fn discard(&self, plan: &MachinePlan, _logs: LogsOnDiscard) -> Result<(), Error> {
        self.note("discard", &plan.workspace);
        lock(&self.state).machines.remove(&plan.workspace);
        let disk = &plan.folders.disk_dir;
        match std::fs::remove_dir_all(disk) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", disk)(error))
            }
            _ => Ok(()),
        }
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        (self.isolation == Isolation::Vm).then_some(self)
    }

    async fn plug(&self, handle: &MachineHandle) -> Result<(), Error> {
        self.note("plug", &handle.workspace);
        self.with_interface(handle)
    }

    async fn set_forwards(
        &self,
        handle: &MachineHandle,
        wanted: &[ForwardedPort],
    ) -> Result<(), Error> {
        let ends: String = wanted.iter().map(|one| format!(" {}", one.host())).collect();
        self.note("set_forwards", &format!("{}{ends}", handle.workspace));
        match lock(&self.state).forward_failures.pop() {
            Some(error) => Err(error),
            None => self.with_interface(handle),
        }
    }

    async fn usage(&self, _handle: &MachineHandle) -> Result<MachineUsage, Error> {
        let cpu = std::time::Duration::from_millis(20);
        Ok(MachineUsage { rss_bytes: 1 << 20, pss_bytes: Some(1 << 20), cpu })
    }

    async fn logs(&self, _folders: &MachineFolders) -> Result<MachineLogs, Error> {
        Ok(MachineLogs { console: "fake console s3cret\n".into(), stderr: String::new() })
    }
}

/// Sends the link's preamble until the guest daemon behind the stream echoes it. Blocks.
pub fn sync_echo(
    mut stream: std::os::unix::net::UnixStream,
    wait: std::time::Duration,
) -> std::io::Result<()> {
    use hivekeep_protocol::{SYNC_LEN, SyncScanner, sync_preamble};
    use std::io::{ErrorKind, Read, Write};
    let end = std::time::Instant::now() + wait;
    let nonce = Uuid::new_v4().into_bytes();
    let preamble: [u8; SYNC_LEN] = sync_preamble(nonce);
    let mut scanner = SyncScanner::default();
    stream.set_read_timeout(Some(std::time::Duration::from_millis(3_000)))?;
    while std::time::Instant::now() < end {
        stream.write_all(&preamble)?;
        let mut buffer = [0; 256];
        match stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) if scanner.push(&buffer[..count]).1 == Some(nonce) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_test_that_ends_takes_its_machine_with_it() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = ProcessId::of_pid(child.id() as i32).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let driver = FakeDriver::new(Isolation::Vm);
        let launched = driver.launch(&plan("ws_1", dir.path())).await.unwrap();
        let handle = MachineHandle { process, helpers: Vec::new(), ..launched.handle };
        let ended = std::panic::catch_unwind(|| {
            let _guard = EndsWithTest::of(&handle);
            panic!("a test fails");
        });
        assert!(ended.is_err());
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }
}
