//! QMP requests that concern a running QEMU's disk, memory and processors.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::launch::Origin;
use super::nic::NIC;
use super::qmp::{self, QmpClient};
use crate::{Disk, Error, MachineHandle, layer, spawn};

const TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a stop, which writes out what the guest's disk still buffers.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of saving or loading a state with all of a guest's memory.
const STATE_TIMEOUT: Duration = Duration::from_secs(300);
/// Interval between two polls of a state in transfer.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Name under which QEMU is given a state's file.
const STATE_FD: &str = "state";
/// Status of the guest's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    Running,
    Paused,
    /// Stopped by saving its state; its disk is released until it runs again.
    Saved,
    /// Stopped by QEMU at a write that found no room on the host; the write is repeated when the
    /// guest resumes. Other failures of a disk do not stop it: the guest sees them, as on real
    /// hardware.
    DiskFull,
}

/// QMP connection for several requests.
pub(super) struct Control(QmpClient);

/// Waits for a new QEMU until its guest runs, or has the state that it was started for. A guest
/// with a state uses another machine's address until it gets its own: its `nic` is cut off.
pub(super) async fn come_up(
    socket: &Path,
    origin: Origin,
    nic: bool,
    timeout: Duration,
) -> Result<(), qmp::Error> {
    let (client, _events) = QmpClient::connect(socket, timeout).await?;
    let control = Control(client);
    if nic && !matches!(origin, Origin::Boot) {
        // QEMU would announce the machine to the network as soon as it is loaded.
        control.ask("migrate-set-parameters", json!({ "announce-rounds": 0 })).await?;
    }
    match origin {
        Origin::Boot => {
            control.mask_legacy_interrupts().await?;
            control.go_on().await?;
            return match control.run_state().await? {
                // A guest whose first write finds no room has been started all the same.
                Run::Running | Run::DiskFull => Ok(()),
                other => Err(qmp::Error::Closed(format!("QEMU's state is {other:?}"))),
            };
        }
        Origin::Fork { device, .. } | Origin::Woken { device, .. } => {
            control.load(device, true).await?
        }
        Origin::Full { state, .. } => control.load(state, false).await?,
    }
    // Not before: whether the link is up is part of the state.
    if nic { control.set_link(false).await } else { Ok(()) }
}

impl Control {
    pub(super) async fn of(handle: &MachineHandle) -> Result<Self, Error> {
        handle.verify_process()?;
        let (client, _events) = QmpClient::connect(&handle.qmp_path(), TIMEOUT).await?;
        Ok(Self(client))
    }

    /// Switches frames between the interface and its backend on or off.
    pub(super) async fn set_link(&self, up: bool) -> Result<(), qmp::Error> {
        self.ask("set_link", json!({ "name": NIC, "up": up })).await.map(drop)
    }

    pub(super) async fn ask(&self, command: &str, arguments: Value) -> Result<Value, qmp::Error> {
        self.0.execute(command, arguments, TIMEOUT).await
    }

    /// Output of a command of QEMU's monitor for people.
    pub(super) async fn monitor(&self, command: &str) -> Result<String, qmp::Error> {
        let arguments = json!({ "command-line": command });
        let answer = self.ask("human-monitor-command", arguments).await?;
        Ok(answer.as_str().unwrap_or_default().to_owned())
    }

    /// Masks the legacy interrupt controllers of a guest that has not run. Their timer ticks from power-on, and
    /// a kernel to which ACPI says that they are not there sets none of them up: a tick before its APIC is ready
    /// is vector 0, a divide error of which the kernel dies.
    async fn mask_legacy_interrupts(&self) -> Result<(), qmp::Error> {
        for command in ["o/b 0x21 0xff", "o/b 0xa1 0xff"] {
            let said = self.monitor(command).await?;
            if !said.trim().is_empty() {
                tracing::warn!(command, said, "QEMU's legacy interrupts are not masked");
            }
        }
        Ok(())
    }

    pub(super) async fn run_state(&self) -> Result<Run, qmp::Error> {
        let status = self.ask("query-status", Value::Null).await?;
        match (status["running"].as_bool(), status["status"].as_str()) {
            (Some(true), _) => Ok(Run::Running),
            (_, Some("postmigrate")) => Ok(Run::Saved),
            (_, Some("paused" | "prelaunch")) => Ok(Run::Paused),
            (_, Some("io-error")) => Ok(Run::DiskFull),
            (_, other) => Err(qmp::Error::Closed(format!("QEMU's state is {other:?}"))),
        }
    }

    pub(super) async fn stop(&self) -> Result<(), qmp::Error> {
        self.0.execute("stop", Value::Null, STOP_TIMEOUT).await.map(drop)
    }

    pub(super) async fn go_on(&self) -> Result<(), qmp::Error> {
        self.0.execute("cont", Value::Null, STOP_TIMEOUT).await.map(drop)
    }

    /// Lets the guest run for a moment if a save stopped it: QEMU saves no state twice without
    /// having run, and releases the disk with a state.
    pub(super) async fn settle(&self) -> Result<Run, Error> {
        match self.run_state().await? {
            Run::Saved => {
                self.go_on().await?;
                self.stop().await?;
                Ok(Run::Paused)
            }
            Run::DiskFull => Err(Error::HostDiskFull),
            state @ (Run::Running | Run::Paused) => Ok(state),
        }
    }

    /// Name of the node that is the guest's disk now.
    pub(super) async fn top(&self) -> Result<String, qmp::Error> {
        let blocks = self.ask("query-block", Value::Null).await?;
        let nodes = blocks.as_array().into_iter().flatten();
        let node = nodes.filter_map(|block| block["inserted"]["node-name"].as_str()).next();
        node.map(str::to_owned).ok_or_else(|| qmp::Error::Closed("QEMU has no disk".into()))
    }

    /// Opens a layer in QEMU, not yet stacked on any other. Does nothing if it is open.
    pub(super) async fn open_layer(&self, path: &Path) -> Result<(), Error> {
        let node = layer::node(path);
        let file_node = format!("{node}-file");
        if self.file_of(&node).await?.is_some() {
            return Ok(());
        }
        if self.file_of(&file_node).await?.is_none() {
            let filename = self.pass(path, true, None).await?.filename();
            let cache = json!({ "direct": spawn::takes_direct(path) });
            let file = json!({
                "driver": "file", "node-name": file_node, "filename": filename,
                "discard": "unmap", "cache": cache,
            });
            self.ask("blockdev-add", file).await?;
        }
        let image = json!({
            "driver": "qcow2", "node-name": node, "file": file_node,
            "backing": null, "discard": "unmap",
        });
        if let Err(error) = self.ask("blockdev-add", image).await {
            // Another file may come under this name.
            let _ = self.ask("blockdev-del", json!({ "node-name": file_node })).await;
            return Err(error.into());
        }
        Ok(())
    }

    /// True if the disk's top is `old_top`, false if it is `new_top` already. Refuses any other
    /// top.
    pub(super) async fn is_to_attach(&self, old_top: &Path, new_top: &Path) -> Result<bool, Error> {
        let present = self.top().await?;
        if present == layer::node(new_top) {
            return Ok(false);
        }
        if present != layer::node(old_top) {
            let why =
                format!("the machine's disk is neither {} nor its new top", old_top.display());
            return Err(Error::BadPlan(why));
        }
        Ok(true)
    }

    /// Puts an open layer above the present top, which is written no more.
    pub(super) async fn attach(&self, old_top: &Path, new_top: &Path) -> Result<(), qmp::Error> {
        let both = json!({ "node": layer::node(old_top), "overlay": layer::node(new_top) });
        self.0.execute("blockdev-snapshot", both, STOP_TIMEOUT).await.map(drop)
    }

    /// Takes from QEMU the right to write a frozen layer: the layer is opened anew, read-only, and
    /// the descriptor that could write is closed. `disk` is the disk whose top it was.
    pub(super) async fn freeze(&self, disk: &Disk) -> Result<(), Error> {
        let node = layer::node(&disk.top);
        let file_node = format!("{node}-file");
        let Some(filename) = self.file_of(&file_node).await? else { return Ok(()) };
        let set = filename.strip_prefix("/dev/fdset/").and_then(|set| set.parse().ok());
        let set = set.ok_or_else(|| Error::BadPlan(format!("{node} is not one of our layers")))?;
        let reading = self.pass(&disk.top, false, Some(set)).await?;
        let below = disk.layers.last().map_or_else(|| "base".to_owned(), |path| layer::node(path));
        let file = json!({
            "driver": "file", "node-name": file_node, "filename": filename,
            "read-only": true,
        });
        let image = json!({
            "driver": "qcow2", "node-name": node, "file": file_node,
            "backing": below, "read-only": true,
        });
        self.ask("blockdev-reopen", json!({ "options": [image, file] })).await?;
        let sets = self.ask("query-fdsets", Value::Null).await?;
        for fd in fds_of(&sets, set) {
            if fd != reading.fd {
                self.ask("remove-fd", json!({ "fdset-id": set, "fd": fd })).await?;
            }
        }
        Ok(())
    }

    /// Path of a node's file; `None` if QEMU has no such node.
    async fn file_of(&self, node: &str) -> Result<Option<String>, qmp::Error> {
        let nodes = self.ask("query-named-block-nodes", json!({ "flat": true })).await?;
        let mut nodes = nodes.as_array().into_iter().flatten();
        let file = nodes.find(|one| one["node-name"] == node);
        Ok(file.and_then(|file| file["file"].as_str()).map(str::to_owned))
    }

    async fn pass(&self, path: &Path, write: bool, set: Option<i64>) -> Result<Passed, Error> {
        let owned = path.to_owned();
        let open = move || spawn::open_for(&owned, write);
        let (fd, _) = tokio::task::spawn_blocking(open).await.map_err(Error::lost_task)??;
        self.pass_fd(fd, set).await
    }

    /// Gives QEMU a descriptor, of a new set if none is named.
    async fn pass_fd(&self, fd: OwnedFd, set: Option<i64>) -> Result<Passed, Error> {
        let arguments = set.map_or_else(|| json!({}), |set| json!({ "fdset-id": set }));
        let added = self.0.execute_with("add-fd", arguments, fd, TIMEOUT).await?;
        let number = |name: &str| {
            added[name].as_i64().ok_or_else(|| qmp::Error::Closed(format!("add-fd gave no {name}")))
        };
        Ok(Passed { set: number("fdset-id")?, fd: number("fd")? })
    }

    /// Prepares [`Control::save`]: nothing of this needs a pause of the guest. `shared` leaves
    /// memory out that is shared with the daemon.
    pub(super) async fn prepare_save(&self, to: OwnedFd, shared: bool) -> Result<(), qmp::Error> {
        self.leave_out_shared(shared).await?;
        // The default is a network's; this is a file, and the guest is waiting.
        self.ask("migrate-set-parameters", json!({ "max-bandwidth": 1_u64 << 40 })).await?;
        self.0.execute_with("getfd", json!({ "fdname": STATE_FD }), to, TIMEOUT).await?;
        Ok(())
    }

    /// Writes the state of a paused guest.
    pub(super) async fn save(&self) -> Result<(), qmp::Error> {
        self.ask("migrate", json!({ "uri": format!("fd:{STATE_FD}") })).await?;
        let end = Instant::now() + STATE_TIMEOUT;
        loop {
            let progress = self.ask("query-migrate", Value::Null).await?;
            match progress["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    let why = format!("no state: {}", progress["error-desc"]);
                    return Err(qmp::Error::Closed(why));
                }
                _ => look_again(end).await?,
            }
        }
    }

    /// Writes the state of a paused guest's devices, without any memory, into a file that is empty. The disk
    /// is flushed, and stays QEMU's.
    pub(super) async fn save_devices(&self, into: OwnedFd) -> Result<(), Error> {
        let set = self.pass_fd(into, None).await?;
        let arguments = json!({ "filename": set.filename(), "live": false });
        let saved = self.0.execute("xen-save-devices-state", arguments, STATE_TIMEOUT).await;
        // Also after a failure, or a machine that cannot be parked would gather descriptors.
        let removed = self.ask("remove-fd", json!({ "fdset-id": set.set })).await;
        Ok(saved.and(removed).map(drop)?)
    }

    async fn load(&self, from: OwnedFd, shared: bool) -> Result<(), qmp::Error> {
        self.leave_out_shared(shared).await?;
        self.0.execute_with("getfd", json!({ "fdname": STATE_FD }), from, TIMEOUT).await?;
        self.ask("migrate-incoming", json!({ "uri": format!("fd:{STATE_FD}") })).await?;
        let end = Instant::now() + STATE_TIMEOUT;
        while self.ask("query-status", Value::Null).await?["status"] != "paused" {
            look_again(end).await?;
        }
        Ok(())
    }

    async fn leave_out_shared(&self, state: bool) -> Result<(), qmp::Error> {
        let capability = json!([{ "capability": "x-ignore-shared", "state": state }]);
        self.ask("migrate-set-capabilities", json!({ "capabilities": capability })).await.map(drop)
    }
}

/// Waits between two polls of a state in transfer.
async fn look_again(end: Instant) -> Result<(), qmp::Error> {
    if Instant::now() > end {
        return Err(qmp::Error::Timeout { what: "a machine's state".into(), after: STATE_TIMEOUT });
    }
    tokio::time::sleep(LOOK_EVERY).await;
    Ok(())
}

/// Descriptors of one set.
fn fds_of(sets: &Value, set: i64) -> Vec<i64> {
    let sets = sets.as_array().into_iter().flatten();
    let own = sets.filter(|one| one["fdset-id"] == set).filter_map(|one| one["fds"].as_array());
    own.flatten().filter_map(|fd| fd["fd"].as_i64()).collect()
}

/// Descriptor that QEMU was given.
struct Passed {
    set: i64,
    fd: i64,
}

impl Passed {
    fn filename(&self) -> String {
        format!("/dev/fdset/{}", self.set)
    }
}
