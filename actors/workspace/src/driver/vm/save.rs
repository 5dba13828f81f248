//! Saving a machine.
//!
//! ```text
//!  running │ copy memory, open the new layer │ stop │ new layer on, device state,  │ cont │ write, sync
//!          │            (shared memory)      │      │ copy what changed meanwhile  │      │
//!  running │        open the new layer       │ stop │ new layer on, whole state    │ cont │ convert, write, sync
//!                      (private memory)
//! ```
//! A machine that booted has memory that the daemon can read from outside, so only what it wrote
//! during the copy is left for the pause. A fork's memory is nobody's but its own: QEMU must write
//! all of it while the guest stands still, and another QEMU turns that into an image as the others.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::VmDriver;
use super::control::{Control, Run};
use super::launch::{self, Origin};
use super::ram::{self, Copy};
use crate::driver::snapshot::Description;
use crate::driver::{
    Carrier, Disk, Driver, Error, Held, LogsOnDiscard, MachineHandle, Plan, Ram, SaveRequest,
    Saved, SavedMemory, SnapshotFolder, layer,
};

/// How often a save is tried whose link does not rest.
const TRIES: u32 = 3;

/// A copy that is worked on in blocking threads, one at a time.
type Shared = Arc<Mutex<Copy>>;

/// Refuses machines that cannot be saved.
pub(super) fn held(handle: &MachineHandle) -> Result<&Held, Error> {
    let refuse = |why: &str| Err(Error::SnapshotUnsupported { why: why.into() });
    match &handle.memory {
        None => refuse("it was started by a daemon that could not save it: stop and start it"),
        Some(held) if held.shape.carrier == Carrier::VhostUserVsock => {
            refuse("QEMU cannot save a machine with a vhost-user-vsock device")
        }
        Some(held) => Ok(held),
    }
}

/// [`crate::driver::Snapshots::switch_disk`].
pub(super) async fn switch_disk(
    handle: &MachineHandle,
    plan: &Plan,
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

/// [`crate::driver::Snapshots::save`], to be run to its end.
pub(super) async fn save(
    driver: VmDriver,
    handle: MachineHandle,
    plan: Plan,
    request: SaveRequest,
) -> Result<Saved, Error> {
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
        Ram::Shared { fd } => saving.shared(fd).await,
        Ram::Private => saving.private().await,
    };
    if saved.is_err() {
        let folder = folder.clone();
        if let Err(error) = blocking(move || folder.remove()).await {
            tracing::warn!(%error, "rest of a failed snapshot");
        }
    }
    saved
}

async fn save_disk(control: &Control, plan: &Plan, new_top: &Path) -> Result<Saved, Error> {
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
    Ok(Saved { pause_ms, layer_is_read_only, memory: None })
}

async fn open_layer(control: &Control, plan: &Plan, new_top: &Path) -> Result<(), Error> {
    let (path, size_bytes) = (new_top.to_owned(), u64::from(plan.disk_gb) << 30);
    blocking(move || layer::make_top(&path, size_bytes)).await?;
    control.open_layer(new_top).await
}

/// Whether the layer is read-only now; it is as good as frozen if not, since nothing writes it.
async fn freeze(control: &Control, old: &Disk) -> bool {
    let frozen = control.freeze(old).await;
    if let Err(error) = &frozen {
        tracing::warn!(layer = %old.top.display(), %error, "a frozen layer stays open for writing");
    }
    frozen.is_ok()
}

async fn sync_layer(path: &Path) -> Result<(), Error> {
    let path = path.to_owned();
    let sync = move || File::open(&path)?.sync_all().map(|()| path);
    let io = |error| Error::io("sync", "layer".as_ref())(error);
    blocking(move || sync().map(drop).map_err(io)).await
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(Error::lost_task)?
}

/// What is known before the guest is stopped.
struct Still {
    was: Run,
    device: Option<String>,
    is_to_attach: bool,
}

/// One save with memory.
struct Saving<'a> {
    driver: &'a VmDriver,
    handle: &'a MachineHandle,
    held: &'a Held,
    plan: &'a Plan,
    control: Control,
    new_top: PathBuf,
    folder: SnapshotFolder,
}

impl Saving<'_> {
    async fn shared(&self, fd: i32) -> Result<Saved, Error> {
        let (handle, memory_mb) = (self.handle.clone(), self.held.shape.memory_mb);
        let copy = blocking(move || copy_of_running(&handle, fd, memory_mb)).await?;
        open_layer(&self.control, self.plan, &self.new_top).await?;
        let device = self.folder.device();
        let (copied, pause) = self.in_one_moment(&device, Some(&copy)).await?;
        self.finish(copy, copied, pause).await
    }

    async fn private(&self) -> Result<Saved, Error> {
        open_layer(&self.control, self.plan, &self.new_top).await?;
        let full = self.folder.full();
        let (_, pause) = self.in_one_moment(&full, None).await?;
        let copy = self.convert(&full).await?;
        // All of it was written in the pause.
        let copied = refresh(&copy).await?;
        self.finish(copy, copied, pause).await
    }

    /// Stops the guest, puts the new layer on, saves its state into `state_file`, and lets it go on.
    /// With a `copy` of the memory that is brought up to date meanwhile, and the state is that of
    /// the devices alone; without, the memory is in it. Tries again if something reached the guest's memory meanwhile. Returns the
    /// longest pause.
    async fn in_one_moment(
        &self,
        state_file: &Path,
        copy: Option<&Shared>,
    ) -> Result<(u64, Duration), Error> {
        let (mut longest, old_top) = (Duration::ZERO, self.plan.disk().top);
        for last in (0..TRIES).map(|n| n + 1 == TRIES) {
            let path = state_file.to_owned();
            let create = move || File::create(&path).map_err(Error::io("create", &path));
            let file: OwnedFd = blocking(create).await?.into();
            let was = self.control.settle().await?;
            self.control.prepare_save(file, copy.is_some()).await?;
            let still = Still {
                was,
                device: self.control.link_device().await?,
                is_to_attach: self.control.is_to_attach(&old_top, &self.new_top).await?,
            };
            let begun = Instant::now();
            let done = self.standing_still(&still, copy).await;
            let resumed = if was == Run::Running { self.control.go_on().await } else { Ok(()) };
            longest = longest.max(begun.elapsed());
            let cause = match (done, resumed) {
                (Ok(copied), Ok(())) => return Ok((copied, longest)),
                (Err(Error::LinkBusy), Ok(())) if !last => continue,
                (Err(cause), resumed) => (cause, resumed.is_ok()),
                (Ok(_), Err(error)) => (error.into(), false),
            };
            let node = layer::node(&self.new_top);
            let disk_switched = self.control.top().await.is_ok_and(|top| top == node);
            let (cause, resumed) = (Box::new(cause.0), cause.1);
            return Err(Error::SaveFailed { resumed, disk_switched, cause });
        }
        Err(Error::LinkBusy)
    }

    async fn standing_still(&self, still: &Still, copy: Option<&Shared>) -> Result<u64, Error> {
        let (control, device) = (&self.control, still.device.as_deref());
        let begun = Instant::now();
        if still.was == Run::Running {
            control.stop().await?;
        }
        let stopped = begun.elapsed();
        if still.is_to_attach {
            control.attach(&self.plan.disk().top, &self.new_top).await?;
        }
        let before = control.link_position(device).await?;
        let attached = begun.elapsed();
        control.save().await?;
        let saved = begun.elapsed();
        let copied = match copy {
            Some(copy) => refresh(copy).await?,
            None => 0,
        };
        tracing::debug!(?stopped, ?attached, ?saved, copied = ?begun.elapsed(), "guest stood still");
        if control.link_position(device).await? == before {
            Ok(copied)
        } else {
            Err(Error::LinkBusy)
        }
    }

    /// Loads a whole state into a QEMU whose memory the daemon shares, and saves its devices alone.
    async fn convert(&self, full: &Path) -> Result<Shared, Error> {
        let plan = self.converter();
        let memory_mb = self.held.shape.memory_mb;
        let path = full.to_owned();
        let open = move || {
            let ram = ram::make(memory_mb).map_err(Error::io("make memory for", &path))?;
            let state = File::open(&path).map_err(Error::io("open", &path))?;
            Ok((ram, OwnedFd::from(state)))
        };
        let (ram, state) = blocking(open).await?;
        let kept = ram.try_clone().map_err(Error::io("keep memory of", full))?;
        self.driver.prepare(&plan).await?;
        let converted = self.convert_with(&plan, Origin::Full { ram: kept, state }).await;
        self.driver.discard(&plan, LogsOnDiscard::Remove).await?;
        converted?;
        let full = full.to_owned();
        blocking(move || {
            std::fs::remove_file(&full).map_err(Error::io("remove", &full))?;
            let copy = Copy::of(ram, memory_mb).map_err(Error::io("copy", &full))?;
            Ok(Arc::new(Mutex::new(copy)))
        })
        .await
    }

    async fn convert_with(&self, plan: &Plan, origin: Origin) -> Result<(), Error> {
        let launched = launch::launch(self.driver, plan, origin).await?;
        let device = self.folder.device();
        let create = move || File::create(&device).map_err(Error::io("create", &device));
        let saved = async {
            let control = Control::of(&launched.handle).await?;
            control.prepare_save(blocking(create).await?.into(), true).await?;
            Ok(control.save().await?)
        };
        let saved: Result<(), Error> = saved.await;
        self.driver.kill(&launched.handle).await?;
        saved
    }

    /// A machine of the same shape that never runs. Named so that no workspace accounts for it: if
    /// the daemon dies now, the next one's sweep removes it.
    fn converter(&self) -> Plan {
        let workspace = format!("{}-convert", self.plan.workspace);
        let mut folders = self.plan.folders.clone();
        for dir in [&mut folders.run_dir, &mut folders.disk_dir, &mut folders.log_dir] {
            dir.set_file_name(&workspace);
        }
        let Disk { mut layers, top } = self.plan.disk();
        layers.push(top);
        let disk = Some(Disk { layers, top: folders.disk() });
        let cid = self.plan.cid.map(|cid| cid ^ 0x4000_0000);
        let uuid = uuid::Uuid::new_v4();
        Plan { workspace, uuid, folders, disk, cid, ..self.plan.clone() }
    }

    /// The guest runs again; what was taken from it is made durable.
    async fn finish(&self, copy: Shared, copied: u64, pause: Duration) -> Result<Saved, Error> {
        let old = self.plan.disk();
        let layer_is_read_only = freeze(&self.control, &old).await;
        sync_layer(&old.top).await?;
        let (folder, shape) = (self.folder.clone(), self.held.shape.clone());
        let write = move || {
            let device = folder.device();
            let synced = File::open(&device).and_then(|file| {
                file.sync_all()?;
                file.metadata()
            });
            let device_bytes = synced.map_err(Error::io("sync", &device))?.len();
            let copy = Arc::into_inner(copy).expect("no thread works on it any more");
            let copy = copy.into_inner().unwrap_or_else(PoisonError::into_inner);
            let ram = folder.ram();
            let (sealed, ram_bytes) = copy.finish(&ram).map_err(Error::io("write", &ram))?;
            let memory = SavedMemory { ram_bytes, device_bytes, copied_in_pause_bytes: copied };
            let description = Description::new(shape, memory);
            folder.complete(&description)?;
            Ok((description, sealed))
        };
        let (description, sealed) = blocking(write).await?;
        self.driver.images.put(description.id, sealed);
        let memory = Some(description.memory);
        Ok(Saved { pause_ms: whole_ms(pause), layer_is_read_only, memory })
    }
}

/// A first copy of the memory of a machine that runs on.
fn copy_of_running(handle: &MachineHandle, fd: i32, memory_mb: u64) -> Result<Shared, Error> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = PathBuf::from(format!("/proc/{}/fd/{fd}", handle.process.pid));
    handle.verify_process()?;
    // Whatever the process may have put there: opening does not wait, and a mapping of it is only
    // made if it is sealed memory of the right size.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
    let source = opened.map_err(Error::io("open the guest's memory", &path))?;
    // The pid was still this process after the descriptor was opened.
    handle.verify_process()?;
    let copied = Copy::of(source.into(), memory_mb).and_then(|mut copy| {
        copy.refresh()?;
        Ok(Arc::new(Mutex::new(copy)))
    });
    copied.map_err(Error::io("copy the guest's memory", &path))
}

async fn refresh(copy: &Shared) -> Result<u64, Error> {
    let copy = Arc::clone(copy);
    let work = move || copy.lock().unwrap_or_else(PoisonError::into_inner).refresh();
    blocking(move || work().map_err(Error::io("copy the guest's", "memory".as_ref()))).await
}

#[cfg(test)]
mod tests;
