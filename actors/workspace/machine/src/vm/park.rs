//! Parking: a machine's memory and devices go to the disk, packed, and its process is needed no more.
//!
//! ```text
//!  stop │ state of the devices, memory straight from where QEMU has it, sync │ (the owner ends it)
//!  wake │ memory of the machine's own, the state loaded into it │ (the owner lets it go on)
//! ```
//! As nothing else begins with that memory, a machine that wakes may write it in place, and is saved
//! the next time as one that booted: without a copy and without another QEMU.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use async_trait::async_trait;

use super::control::{Control, Run};
use super::launch::{self, Origin};
use super::ram::{Pages, PrivateMapping, Sealed, pack, unpack};
use super::save::{self, Saving, blocking, create, held, receive, source_of, sync_layer};
use super::{VmDriver, nic};
use crate::snapshot::{Packed, SnapshotDescription};
use crate::{
    Error, LaunchedMachine, MachineHandle, MachineMemory, MachinePlan, ParkRequest, RamLocation,
    SaveRequest, SaveResult, SavedMemory, SharedImage, SnapshotFolder, Snapshots,
};

/// [`crate::Snapshots::park`], to be run to its end.
pub(super) async fn park(
    driver: VmDriver,
    handle: MachineHandle,
    plan: MachinePlan,
    request: ParkRequest,
) -> Result<SavedMemory, Error> {
    let control = Control::of(&handle).await?;
    let held = held(&handle)?;
    let folder = request.into.clone();
    let saving = Saving {
        driver: &driver,
        handle: &handle,
        held,
        plan: &plan,
        control,
        new_top: plan.disk().top,
        folder: folder.clone(),
    };
    let begun = folder.clone();
    blocking(move || begun.begin()).await?;
    let parked = async {
        if saving.control.settle().await? == Run::Running {
            saving.control.stop().await?;
        }
        let memory = saving.standing(held).await?;
        sync_layer(&plan.disk().top).await?;
        let (shape, base) = (held.shape.clone(), request.base);
        blocking(move || write(&folder, shape, &memory, base.as_ref())).await
    };
    let parked = parked.await;
    if parked.is_err() {
        let folder = request.into;
        if let Err(error) = blocking(move || folder.remove()).await {
            tracing::warn!(%error, "rest of a failed save");
        }
    }
    parked
}

impl Saving<'_> {
    /// The state of the devices goes into its file; the memory is answered.
    async fn standing(&self, held: &MachineMemory) -> Result<Pages, Error> {
        let memory_mb = held.shape.memory_mb;
        let of_memfd = move |file| {
            Pages::of_memfd(file, memory_mb)
                .map_err(Error::io("read the guest's", "memory".as_ref()))
        };
        match held.ram {
            RamLocation::Shared { fd } => {
                self.control.prepare_save(create(self.folder.device()).await?, true).await?;
                self.control.save().await?;
                let handle = self.handle.clone();
                blocking(move || of_memfd(source_of(&handle, fd)?)).await
            }
            RamLocation::Private { image } => {
                if let Some(mapping) = self.mapping(image, memory_mb).await {
                    self.devices_alone().await?;
                    let read = Error::io("read the guest's", "memory".as_ref());
                    return blocking(move || mapping.pages().map_err(read)).await;
                }
                let (into, receiver) = receive().await?;
                self.control.prepare_save(into, false).await?;
                self.control.save().await?;
                let state = receiver.await.map_err(Error::lost_task)?;
                let state = state.map_err(Error::io("take the guest's", "state".as_ref()))?;
                let memory = File::from(self.converted(state).await?);
                blocking(move || of_memfd(memory)).await
            }
        }
    }

    /// The machine's private memory, where the kernel lets this process look into that one.
    async fn mapping(&self, image: Option<SharedImage>, memory_mb: u64) -> Option<PrivateMapping> {
        let (handle, image) = (self.handle.clone(), image?);
        let look = move || {
            let file = source_of(&handle, image.fd)?;
            let mapping = PrivateMapping::of(&handle, image, file, memory_mb);
            mapping.map_err(Error::io("look at the guest's", "memory".as_ref()))
        };
        let found = blocking(look).await;
        let told =
            |error: &Error| tracing::warn!(%error, "QEMU itself has to write a guest's memory");
        found.inspect_err(told).ok()
    }
}

/// Packs the memory and completes the folder. Blocks.
fn write(
    folder: &SnapshotFolder,
    shape: crate::MachineShape,
    memory: &Pages,
    base: Option<&SnapshotFolder>,
) -> Result<SavedMemory, Error> {
    let device_bytes = folder.sync_device()?;
    let base = base.and_then(|base| usable(base, shape.memory_mb));
    let packed = folder.packed();
    let wrote = File::options().write(true).create_new(true).open(&packed).and_then(|into| {
        let base = base.as_ref().map(|(id, file)| (*id, file));
        let ram_bytes = pack(memory, base, &into)?;
        Ok((ram_bytes, into.metadata()?.len()))
    });
    let (ram_bytes, bytes) = wrote.map_err(Error::io("write", &packed))?;
    let memory = SavedMemory { ram_bytes, device_bytes, copied_in_pause_bytes: ram_bytes };
    let packed = Packed { bytes, base: base.map(|(id, _)| id) };
    folder.complete(&SnapshotDescription::new(shape, memory).packed(packed))?;
    Ok(SavedMemory { ram_bytes: bytes, ..memory })
}

/// A memory image that a machine of this size can be a difference to.
fn usable(base: &SnapshotFolder, memory_mb: u64) -> Option<(uuid::Uuid, File)> {
    let description = base.describe().ok()?;
    let fits = description.packed.is_none() && description.shape.memory_mb == memory_mb;
    let file = fits.then(|| File::open(base.ram()).ok()).flatten()?;
    Some((description.id, file))
}

/// [`crate::Snapshots::wake`], which leaves the parked memory in its folder.
pub(super) async fn wake(
    driver: &VmDriver,
    plan: &MachinePlan,
    request: ParkRequest,
) -> Result<LaunchedMachine, Error> {
    let (parts, wished) = (driver.clone(), plan.clone());
    let open = move || {
        let folder = &request.into;
        let damaged = |why: &str| Error::SnapshotDamaged {
            folder: folder.path().to_owned(),
            why: why.to_owned(),
        };
        let description = folder.describe()?;
        let packed = description.packed.as_ref().ok_or_else(|| damaged("it is not packed"))?;
        let plan = nic::fit(&wished, description.shape.nic)?;
        let processor = launch::processor_of(&parts, &plan, &description.shape);
        launch::shape(&parts, &plan, processor).must_fit(&description.shape)?;
        let base = match packed.base {
            None => None,
            Some(id) => {
                let base = request.base.as_ref().and_then(|base| usable(base, plan.memory_mb));
                let base = base.filter(|(is, _)| *is == id).map(|(_, file)| file);
                Some(base.ok_or_else(|| damaged("the memory that it is a difference to is gone"))?)
            }
        };
        let (device, path) = (folder.device(), folder.packed());
        let state = File::open(&device).map_err(Error::io("open", &device))?;
        let ram = File::open(&path).and_then(|file| unpack(&file, plan.memory_mb, base.as_ref()));
        let ram = ram.map_err(Error::io("load", &path))?;
        let origin = Origin::Woken { ram, device: OwnedFd::from(state) };
        Ok((plan, processor, origin))
    };
    let (plan, processor, origin) = blocking(open).await?;
    let launched = launch::launch(driver, &plan, origin, processor).await?;
    driver.begin_beside(&launched.handle);
    Ok(launched)
}

#[async_trait]
impl Snapshots for VmDriver {
    async fn pause(&self, handle: &MachineHandle) -> Result<(), Error> {
        let control = Control::of(handle).await?;
        match control.run_state().await? {
            Run::Running => Ok(control.stop().await?),
            Run::Paused | Run::Saved => Ok(()),
            Run::DiskFull => Err(Error::HostDiskFull),
        }
    }

    async fn resume(&self, handle: &MachineHandle) -> Result<(), Error> {
        let control = Control::of(handle).await?;
        match control.run_state().await? {
            Run::Running => Ok(()),
            Run::Paused | Run::Saved | Run::DiskFull => Ok(control.go_on().await?),
        }
    }

    async fn is_paused(&self, handle: &MachineHandle) -> Result<bool, Error> {
        let state = Control::of(handle).await?.run_state().await?;
        Ok(matches!(state, Run::Paused | Run::Saved))
    }

    async fn is_disk_full(&self, handle: &MachineHandle) -> Result<bool, Error> {
        Ok(Control::of(handle).await?.run_state().await? == Run::DiskFull)
    }

    async fn switch_disk(
        &self,
        handle: &MachineHandle,
        plan: &MachinePlan,
        new_top: &Path,
    ) -> Result<bool, Error> {
        let (handle, plan, new_top) = (handle.clone(), plan.clone(), new_top.to_owned());
        let switch = async move { save::switch_disk(&handle, &plan, &new_top).await };
        tokio::spawn(switch).await.map_err(Error::lost_task)?
    }

    async fn save(
        &self,
        handle: &MachineHandle,
        plan: &MachinePlan,
        request: &SaveRequest,
    ) -> Result<SaveResult, Error> {
        // A task of its own: a caller that goes away must not leave the guest standing still.
        let saving = save::save(self.clone(), handle.clone(), plan.clone(), request.clone());
        tokio::spawn(saving).await.map_err(Error::lost_task)?
    }

    async fn launch_from(
        &self,
        plan: &MachinePlan,
        snapshot: &SnapshotFolder,
    ) -> Result<LaunchedMachine, Error> {
        let (driver, wished, folder) = (self.clone(), plan.clone(), snapshot.clone());
        let open = move || {
            let description = folder.describe()?;
            if description.packed.is_some() {
                let why = "it is of one machine, which alone can wake from it".to_owned();
                return Err(Error::SnapshotDamaged { folder: folder.path().to_owned(), why });
            }
            let plan = nic::fit(&wished, description.shape.nic)?;
            let processor = launch::processor_of(&driver, &plan, &description.shape);
            launch::shape(&driver, &plan, processor).must_fit(&description.shape)?;
            let device = folder.device();
            let state = std::fs::File::open(&device).map_err(Error::io("open", &device))?;
            Ok::<_, Error>((plan, processor, description, OwnedFd::from(state)))
        };
        let (plan, processor, description, device) =
            tokio::task::spawn_blocking(open).await.map_err(Error::lost_task)??;
        let (ram, memory_mb) = (snapshot.ram(), plan.memory_mb);
        let load = async {
            let load = move || Sealed::load(&ram, memory_mb).map_err(Error::io("load", &ram));
            tokio::task::spawn_blocking(load).await.map_err(Error::lost_task)?
        };
        let id = description.id;
        let image = self.images.get(id, load).await?;
        let origin = Origin::Fork { id, image, device };
        let launched = launch::launch(self, &plan, origin, processor).await?;
        self.begin_beside(&launched.handle);
        Ok(launched)
    }

    async fn park(
        &self,
        handle: &MachineHandle,
        plan: &MachinePlan,
        request: &ParkRequest,
    ) -> Result<SavedMemory, Error> {
        let parking = park(self.clone(), handle.clone(), plan.clone(), request.clone());
        tokio::spawn(parking).await.map_err(Error::lost_task)?
    }

    async fn wake(
        &self,
        plan: &MachinePlan,
        request: &ParkRequest,
    ) -> Result<LaunchedMachine, Error> {
        wake(self, plan, request.clone()).await
    }

    async fn discard_snapshot(&self, snapshot: &SnapshotFolder) -> Result<(), Error> {
        let folder = snapshot.clone();
        let remove = move || {
            let id = folder.describe().ok().map(|description| description.id);
            folder.remove().map(|()| id)
        };
        let id = tokio::task::spawn_blocking(remove).await.map_err(Error::lost_task)??;
        id.into_iter().for_each(|id| self.images.forget(id));
        Ok(())
    }
}
