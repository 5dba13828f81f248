//! Live snapshot of a machine: its disk alone, or its disk and memory.
//!
//! ```text
//!  running │ copy memory, open the new layer │ stop │ new layer on, device state,  │ cont │ write, sync
//!          │            (shared memory)      │      │ copy what changed meanwhile  │      │
//!  running │        open the new layer       │ stop │ new layer on, whole state    │ cont │ convert, write, sync
//!                      (private memory)
//! ```
//! A machine that booted has memory that the daemon can read from outside, so only what it wrote
//! during the copy is left for the pause. A fork's memory is nobody's but its own: QEMU must write
//! all of it while the guest is paused, and another QEMU turns that into an image as the others.

mod devices;

use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hivekeep_kernel::lock;
use rustix::fs::MemfdFlags;
use rustix::pipe::PipeFlags;
use tokio::task::JoinHandle;

use super::VmDriver;
use super::control::{Control, Run};
use super::ram::Copy;
use crate::layer;
use crate::snapshot::SnapshotDescription;
use crate::{
    CarrierKind, Disk, Error, MachineHandle, MachineMemory, MachinePlan, RamLocation, SaveRequest,
    SaveResult, SavedMemory, SnapshotFolder,
};

/// Size of a pipe: as much as an unprivileged process may have.
const PIPE_BYTES: usize = 1 << 20;

/// A copy that blocking threads work on, one at a time.
type Shared = Arc<Mutex<Copy>>;

/// Refuses machines that cannot be saved.
pub(super) fn held(handle: &MachineHandle) -> Result<&MachineMemory, Error> {
    let refuse = |why: &str| Err(Error::SnapshotUnsupported { why: why.into() });
    match &handle.memory {
        None => refuse("it was started by a daemon that could not save it: stop and start it"),
        Some(held) if held.shape.carrier == CarrierKind::VhostUserVsock => {
            refuse("QEMU cannot save a machine with a vhost-user-vsock device")
        }
        Some(held) => Ok(held),
    }
}

/// [`crate::Snapshots::switch_disk`]; a call after a failure does what is left to do.
pub(super) async fn switch_disk(
    handle: &MachineHandle,
    plan: &MachinePlan,
    new_top: &Path,
) -> Result<bool, Error> {
    let control = Control::of(handle).await?;
    control.settle().await?;
    open_layer(&control, plan, new_top).await?;
    let old = plan.disk();
    if control.is_to_attach(&old.top, new_top).await? {
        control.attach(&old.top, new_top).await?;
    }
    Ok(freeze(&control, &old).await)
}

/// [`crate::Snapshots::save`], to be run to its end.
pub(super) async fn save(
    driver: VmDriver,
    handle: MachineHandle,
    plan: MachinePlan,
    request: SaveRequest,
) -> Result<SaveResult, Error> {
    let control = Control::of(&handle).await?;
    let Some(folder) = &request.memory_into else {
        return save_disk(&control, &plan, &request.new_top).await;
    };
    let held = held(&handle)?;
    let saving = Saving {
        driver: &driver,
        handle: &handle,
        held,
        plan: &plan,
        control,
        new_top: request.new_top.clone(),
        folder: folder.clone(),
    };
    let begun = folder.clone();
    blocking(move || begun.begin()).await?;
    let saved = match held.ram {
        RamLocation::Shared { fd } => saving.shared(fd).await,
        RamLocation::Private { .. } => saving.private().await,
    };
    if saved.is_err() {
        let folder = folder.clone();
        if let Err(error) = blocking(move || folder.remove()).await {
            tracing::warn!(%error, "rest of a failed snapshot");
        }
    }
    saved
}

async fn save_disk(
    control: &Control,
    plan: &MachinePlan,
    new_top: &Path,
) -> Result<SaveResult, Error> {
    let old = plan.disk();
    control.settle().await?;
    open_layer(control, plan, new_top).await?;
    // QEMU holds the disk's requests back by itself; the guest's processors go on.
    let is_to_attach = control.is_to_attach(&old.top, new_top).await?;
    let begun = Instant::now();
    if is_to_attach {
        control.attach(&old.top, new_top).await?;
    }
    let pause_ms = whole_ms(begun.elapsed());
    let layer_is_read_only = freeze(control, &old).await;
    sync_layer(&old.top).await?;
    Ok(SaveResult { pause_ms, layer_is_read_only, memory: None })
}

async fn open_layer(control: &Control, plan: &MachinePlan, new_top: &Path) -> Result<(), Error> {
    let (path, size_bytes) = (new_top.to_owned(), u64::from(plan.disk_gb) << 30);
    blocking(move || layer::make_top(&path, size_bytes)).await?;
    control.open_layer(new_top).await
}

/// Makes the layer read-only; true on success. A failure does no harm, since nothing writes the
/// layer any more.
async fn freeze(control: &Control, old: &Disk) -> bool {
    let frozen = control.freeze(old).await;
    if let Err(error) = &frozen {
        tracing::warn!(layer = %old.top.display(), %error, "a frozen layer stays open for writing");
    }
    frozen.is_ok()
}

pub(super) async fn sync_layer(path: &Path) -> Result<(), Error> {
    let path = path.to_owned();
    blocking(move || hivekeep_fs::sync_file(&path).map_err(Error::io("sync", &path))).await
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(Error::lost_task)?
}

/// State that a pause produced.
struct State {
    /// Bytes of memory that were copied during the pause.
    copied: u64,
    /// The whole state on its way into a memfd; `None` if the devices' went into their file.
    receiver: Option<JoinHandle<io::Result<OwnedFd>>>,
}

impl State {
    /// The whole state, from its beginning.
    async fn taken(self) -> Result<OwnedFd, Error> {
        let none = || io::Error::other("no state was asked for");
        let received =
            self.receiver.ok_or_else(none).map_err(Error::io("take", "state".as_ref()))?;
        let received = received.await.map_err(Error::lost_task)?;
        received.map_err(Error::io("take the guest's", "state".as_ref()))
    }
}

pub(super) async fn create(path: PathBuf) -> Result<OwnedFd, Error> {
    blocking(move || Ok(File::create(&path).map_err(Error::io("create", &path))?.into())).await
}

/// A pipe whose content a thread keeps in a memfd. QEMU's own writes into a file would be charged
/// to the machine's cgroup, beside all of its memory, and would wait for the disk in the pause.
pub(super) async fn receive() -> Result<(OwnedFd, JoinHandle<io::Result<OwnedFd>>), Error> {
    let made = || -> io::Result<_> {
        let (from, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // Fewer changes between writer and reader; a limit of the host's is no failure.
        let _ = rustix::pipe::fcntl_setpipe_size(&into, PIPE_BYTES);
        let state = rustix::fs::memfd_create("hivekeep-state", MemfdFlags::CLOEXEC)?;
        Ok((File::from(from), into, File::from(state)))
    };
    let (mut from, into, mut state) = made().map_err(Error::io("make a pipe", "state".as_ref()))?;
    let receiver = tokio::task::spawn_blocking(move || {
        io::copy(&mut from, &mut state)?;
        state.rewind()?;
        Ok(state.into())
    });
    Ok((into, receiver))
}

/// Facts that are known before the guest is stopped.
struct Still {
    was: Run,
    is_to_attach: bool,
}

/// Save of a machine with its memory.
pub(super) struct Saving<'a> {
    pub(super) driver: &'a VmDriver,
    pub(super) handle: &'a MachineHandle,
    pub(super) held: &'a MachineMemory,
    pub(super) plan: &'a MachinePlan,
    pub(super) control: Control,
    pub(super) new_top: PathBuf,
    pub(super) folder: SnapshotFolder,
}

impl Saving<'_> {
    async fn shared(&self, fd: i32) -> Result<SaveResult, Error> {
        let (handle, memory_mb) = (self.handle.clone(), self.held.shape.memory_mb);
        let copy = blocking(move || copy_of_running(&handle, fd, memory_mb)).await?;
        open_layer(&self.control, self.plan, &self.new_top).await?;
        let (state, pause) = self.in_one_moment(Some(&copy)).await?;
        let copied = state.copied;
        self.finish(copy, copied, pause).await
    }

    async fn private(&self) -> Result<SaveResult, Error> {
        open_layer(&self.control, self.plan, &self.new_top).await?;
        let (state, pause) = self.in_one_moment(None).await?;
        let state = state.taken().await?;
        let copy = self.convert(state).await?;
        // All of it was written in the pause.
        let copied = refresh(&copy).await?;
        self.finish(copy, copied, pause).await
    }

    /// Stops the guest, puts the new layer on, saves its state, and lets it go on. With a `copy` of
    /// the memory, that is brought up to date and the state is the devices' alone; without, the
    /// memory is in it. Returns how long the guest was paused.
    async fn in_one_moment(&self, copy: Option<&Shared>) -> Result<(State, Duration), Error> {
        let (into, receiver) = match copy {
            Some(_) => (create(self.folder.device()).await?, None),
            None => receive().await.map(|(into, receiver)| (into, Some(receiver)))?,
        };
        let was = self.control.settle().await?;
        self.control.prepare_save(into, copy.is_some()).await?;
        let old_top = self.plan.disk().top;
        let is_to_attach = self.control.is_to_attach(&old_top, &self.new_top).await?;
        let begun = Instant::now();
        let done = self.standing_still(&Still { was, is_to_attach }, copy).await;
        let resumed = if was == Run::Running { self.control.go_on().await } else { Ok(()) };
        let pause = begun.elapsed();
        let (cause, resumed) = match (done, resumed) {
            (Ok(copied), Ok(())) => return Ok((State { copied, receiver }, pause)),
            (Err(cause), resumed) => (cause, resumed.is_ok()),
            (Ok(_), Err(error)) => (error.into(), false),
        };
        let node = layer::node(&self.new_top);
        let disk_switched = self.control.top().await.is_ok_and(|top| top == node);
        Err(Error::SaveFailed { resumed, disk_switched, cause: Box::new(cause) })
    }

    async fn standing_still(&self, still: &Still, copy: Option<&Shared>) -> Result<u64, Error> {
        let control = &self.control;
        let begun = Instant::now();
        if still.was == Run::Running {
            control.stop().await?;
        }
        let stopped = begun.elapsed();
        if still.is_to_attach {
            control.attach(&self.plan.disk().top, &self.new_top).await?;
        }
        let attached = begun.elapsed();
        control.save().await?;
        let saved = begun.elapsed();
        let copied = match copy {
            Some(copy) => refresh(copy).await?,
            None => 0,
        };
        tracing::debug!(?stopped, ?attached, ?saved, copied = ?begun.elapsed(), "guest stood still");
        Ok(copied)
    }

    /// The guest runs again; what was taken from it is made durable.
    async fn finish(
        &self,
        copy: Shared,
        copied: u64,
        pause: Duration,
    ) -> Result<SaveResult, Error> {
        let old = self.plan.disk();
        let layer_is_read_only = freeze(&self.control, &old).await;
        sync_layer(&old.top).await?;
        let (folder, shape) = (self.folder.clone(), self.held.shape.clone());
        let write = move || {
            let device_bytes = folder.sync_device()?;
            let copy = Arc::into_inner(copy).expect("no thread works on it any more");
            let copy = copy.into_inner().unwrap_or_else(PoisonError::into_inner);
            let ram = folder.ram();
            let (sealed, ram_bytes) = copy.finish(&ram).map_err(Error::io("write", &ram))?;
            let memory = SavedMemory { ram_bytes, device_bytes, copied_in_pause_bytes: copied };
            let description = SnapshotDescription::new(shape, memory);
            folder.complete(&description)?;
            Ok((description, sealed))
        };
        let (description, sealed) = blocking(write).await?;
        self.driver.images.put(description.id, sealed);
        let memory = Some(description.memory);
        Ok(SaveResult { pause_ms: whole_ms(pause), layer_is_read_only, memory })
    }
}

/// A first copy of the memory of a machine that runs on.
fn copy_of_running(handle: &MachineHandle, fd: i32, memory_mb: u64) -> Result<Shared, Error> {
    let source = source_of(handle, fd)?;
    let copied = Copy::of(source.into(), memory_mb).and_then(|mut copy| {
        copy.refresh()?;
        Ok(Arc::new(Mutex::new(copy)))
    });
    copied.map_err(Error::io("copy the guest's", "memory".as_ref()))
}

/// The memory of a machine that the daemon can read from outside. The reader checks whether it is memory of
/// the right size.
pub(super) fn source_of(handle: &MachineHandle, fd: i32) -> Result<File, Error> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = PathBuf::from(format!("/proc/{}/fd/{fd}", handle.process.pid));
    handle.verify_process()?;
    // Whatever the process may have put there: opening does not wait, and a mapping of it is only
    // made if it is sealed memory of the right size.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
    let source = opened.map_err(Error::io("open the guest's memory", &path))?;
    // The pid was still this process after the descriptor was opened.
    handle.verify_process()?;
    Ok(source)
}

async fn refresh(copy: &Shared) -> Result<u64, Error> {
    let copy = Arc::clone(copy);
    let work = move || lock(&copy).refresh();
    blocking(move || work().map_err(Error::io("copy the guest's", "memory".as_ref()))).await
}

#[cfg(test)]
pub(super) mod tests;
