//! [`Snapshots`] of virtual machines.

use std::os::fd::OwnedFd;
use std::path::Path;

use async_trait::async_trait;

use super::control::{Control, Run};
use super::launch::{self, Origin};
use super::ram::Sealed;
use super::{VmDriver, nic, park, save};
use crate::{
    Error, LaunchedMachine, MachineHandle, MachinePlan, ParkRequest, SaveRequest, SaveResult,
    SavedMemory, SnapshotFolder, Snapshots,
};

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
        let parking = park::park(self.clone(), handle.clone(), plan.clone(), request.clone());
        tokio::spawn(parking).await.map_err(Error::lost_task)?
    }

    async fn wake(
        &self,
        plan: &MachinePlan,
        request: &ParkRequest,
    ) -> Result<LaunchedMachine, Error> {
        park::wake(self, plan, request.clone()).await
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
