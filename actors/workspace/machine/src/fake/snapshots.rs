//! Fake [`Snapshots`]. Layers and memory images are small files, so that tests can inspect what is
//! made, left over and removed.

use std::fs;
use std::path::Path;

use async_trait::async_trait;
use hivekeep_kernel::lock;

use super::FakeDriver;
use crate::layer;
use crate::snapshot::{Packed, SnapshotDescription};
use crate::{
    Driver, Error, LaunchedMachine, MachineHandle, MachineMemory, MachinePlan, MachineShape,
    ParkRequest, RamLocation, ReattachError, SaveRequest, SaveResult, SavedMemory, SavedNic,
    SnapshotFolder, Snapshots,
};

pub(super) fn held(plan: &MachinePlan, ram: RamLocation) -> MachineMemory {
    let shape = MachineShape {
        program: "fake".into(),
        machine: "fake".into(),
        vcpus: plan.vcpus,
        memory_mb: plan.memory_mb,
        carrier: plan.carrier,
        tsc_khz: 0,
        nic: if plan.nic.is_some() { SavedNic::Plain } else { SavedNic::None },
    };
    MachineMemory { shape, ram }
}

impl FakeDriver {
    /// Path of the layer that a machine writes.
    pub fn top(&self, workspace: &str) -> Option<std::path::PathBuf> {
        lock(&self.state).tops.get(workspace).cloned()
    }

    /// Makes the next save fail with this, after the disk was switched.
    pub fn fail_next_save(&self, error: Error) {
        lock(&self.state).save_failures.push(error);
    }

    /// Makes the next pause or resume fail with this.
    pub fn fail_next_turn(&self, error: Error) {
        lock(&self.state).turn_failures.push(error);
    }

    fn turns(&self) -> Result<(), Error> {
        lock(&self.state).turn_failures.pop().map_or(Ok(()), Err)
    }

    fn living(&self, handle: &MachineHandle) -> Result<(), Error> {
        if self.is_running(&handle.workspace) {
            Ok(())
        } else {
            Err(ReattachError::Ended { pid: handle.process.pid }.into())
        }
    }

    fn attach(
        &self,
        handle: &MachineHandle,
        plan: &MachinePlan,
        new_top: &Path,
    ) -> Result<(), Error> {
        let present = self.top(&handle.workspace);
        if present.as_deref() == Some(new_top) {
            return Ok(());
        }
        if present.is_some_and(|present| present != plan.disk().top) {
            return Err(Error::BadPlan("the machine's disk is neither the old nor the new".into()));
        }
        make_layer(new_top, plan.disk_gb)?;
        lock(&self.state).tops.insert(handle.workspace.clone(), new_top.to_owned());
        Ok(())
    }
}

/// Makes a sound layer, which can be merged with others.
pub(super) fn make_layer(path: &Path, disk_gb: u32) -> Result<(), Error> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(Error::io("make the folder", parent))?;
    layer::make_top(path, u64::from(disk_gb) << 30)
}

#[async_trait]
impl Snapshots for FakeDriver {
    async fn pause(&self, handle: &MachineHandle) -> Result<(), Error> {
        self.note("pause", &handle.workspace);
        self.held("pause").await;
        self.living(handle).and_then(|()| self.turns())?;
        lock(&self.state).paused.insert(handle.workspace.clone());
        Ok(())
    }

    async fn resume(&self, handle: &MachineHandle) -> Result<(), Error> {
        self.note("resume", &handle.workspace);
        self.held("resume").await;
        self.living(handle).and_then(|()| self.turns())?;
        let room = {
            let mut state = lock(&self.state);
            state.paused.remove(&handle.workspace);
            state.starved.get(&handle.workspace).copied()
        };
        if room == Some(true) {
            lock(&self.state).starved.remove(&handle.workspace);
            if let super::Endpoint::Unix { path, .. } = &handle.endpoint {
                self.serve(&handle.workspace, path)?;
            }
        }
        Ok(())
    }

    async fn is_disk_full(&self, handle: &MachineHandle) -> Result<bool, Error> {
        self.living(handle)?;
        Ok(lock(&self.state).starved.contains_key(&handle.workspace))
    }

    async fn is_paused(&self, handle: &MachineHandle) -> Result<bool, Error> {
        self.living(handle)?;
        Ok(lock(&self.state).paused.contains(&handle.workspace))
    }

    async fn switch_disk(
        &self,
        handle: &MachineHandle,
        plan: &MachinePlan,
        new_top: &Path,
    ) -> Result<bool, Error> {
        self.note("switch_disk", &handle.workspace);
        self.living(handle)?;
        self.attach(handle, plan, new_top).map(|()| true)
    }

    async fn save(
        &self,
        handle: &MachineHandle,
        plan: &MachinePlan,
        request: &SaveRequest,
    ) -> Result<SaveResult, Error> {
        self.note("save", &handle.workspace);
        self.held("save").await;
        self.living(handle)?;
        self.attach(handle, plan, &request.new_top)?;
        if let Some(cause) = lock(&self.state).save_failures.pop() {
            let cause = Box::new(cause);
            return Err(Error::SaveFailed { resumed: true, disk_switched: true, cause });
        }
        let mut saved = SaveResult { pause_ms: 1, layer_is_read_only: true, memory: None };
        if let Some(folder) = &request.memory_into {
            let memory = SavedMemory { ram_bytes: 0, device_bytes: 4, copied_in_pause_bytes: 0 };
            folder.begin()?;
            let ram = fs::File::create(folder.ram());
            ram.and_then(|ram| ram.set_len(plan.memory_mb << 20))
                .and_then(|()| fs::write(folder.device(), "fake"))
                .map_err(Error::io("write", folder.path()))?;
            let held = handle
                .memory
                .clone()
                .unwrap_or_else(|| held(plan, RamLocation::Private { image: None }));
            folder.complete(&SnapshotDescription::new(held.shape, memory))?;
            saved.memory = Some(memory);
        }
        Ok(saved)
    }

    async fn launch_from(
        &self,
        plan: &MachinePlan,
        snapshot: &SnapshotFolder,
    ) -> Result<LaunchedMachine, Error> {
        self.note("launch_from", &plan.workspace);
        self.held("launch_from").await;
        let (mut held, saved) =
            (held(plan, RamLocation::Private { image: None }), snapshot.describe()?.shape);
        held.shape.nic = saved.nic;
        held.shape.must_fit(&saved)?;
        let mut launched = self.launch(plan).await?;
        launched.handle.nic = saved.nic != SavedNic::None;
        launched.handle.memory = Some(held);
        lock(&self.state).paused.insert(plan.workspace.clone());
        Ok(launched)
    }

    async fn park(
        &self,
        handle: &MachineHandle,
        _plan: &MachinePlan,
        request: &ParkRequest,
    ) -> Result<SavedMemory, Error> {
        self.note("park", &handle.workspace);
        self.living(handle)?;
        lock(&self.state).paused.insert(handle.workspace.clone());
        self.held("park").await;
        if let Some(error) = lock(&self.state).save_failures.pop() {
            return Err(error);
        }
        let (folder, packed) = (&request.into, Packed { bytes: 4, base: None });
        folder.begin()?;
        let write = |path| fs::write(path, "fake");
        write(folder.packed())
            .and_then(|()| write(folder.device()))
            .map_err(Error::io("write", folder.path()))?;
        let held = handle.memory.clone().ok_or(Error::HostDiskFull)?;
        let memory = SavedMemory { ram_bytes: 4, device_bytes: 4, copied_in_pause_bytes: 0 };
        folder.complete(&SnapshotDescription::new(held.shape, memory).packed(packed))?;
        Ok(memory)
    }

    async fn wake(
        &self,
        plan: &MachinePlan,
        request: &ParkRequest,
    ) -> Result<LaunchedMachine, Error> {
        self.note("wake", &plan.workspace);
        self.held("wake").await;
        let saved = request.into.describe()?.shape;
        let shape = held(plan, RamLocation::Private { image: None }).shape;
        MachineShape { nic: saved.nic, ..shape }.must_fit(&saved)?;
        let mut launched = self.launch(plan).await?;
        launched.handle.nic = saved.nic != SavedNic::None;
        lock(&self.state).paused.insert(plan.workspace.clone());
        Ok(launched)
    }

    async fn discard_snapshot(&self, snapshot: &SnapshotFolder) -> Result<(), Error> {
        snapshot.remove()
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;
    use crate::Isolation;

    #[tokio::test]
    async fn saves_forks_and_refuses_as_the_real_one() {
        let dir = tempfile::tempdir().unwrap();
        let driver = FakeDriver::new(Isolation::Vm);
        let snapshots = driver.snapshots().unwrap();
        assert!(FakeDriver::new(Isolation::Sandbox).snapshots().is_none());
        let source = plan("ws_source", dir.path());
        let handle = driver.launch(&source).await.unwrap().handle;
        let (top, folder) = (dir.path().join("top"), SnapshotFolder::new(dir.path().join("mem")));
        let request = SaveRequest { new_top: top.clone(), memory_into: Some(folder.clone()) };
        snapshots.save(&handle, &source, &request).await.unwrap();
        assert!(
            top.exists() && folder.is_complete() && driver.top("ws_source") == Some(top.clone())
        );
        assert!(snapshots.switch_disk(&handle, &source, &top).await.unwrap(), "it is done already");
        let other = dir.path().join("other");
        assert!(snapshots.switch_disk(&handle, &source, &other).await.is_err());

        let fork = plan("ws_fork", dir.path());
        let handle = snapshots.launch_from(&fork, &folder).await.unwrap().handle;
        assert!(snapshots.is_paused(&handle).await.unwrap());
        snapshots.resume(&handle).await.unwrap();
        assert!(!snapshots.is_paused(&handle).await.unwrap());
        let larger = MachinePlan { memory_mb: 512, ..plan("ws_large", dir.path()) };
        let refused = snapshots.launch_from(&larger, &folder).await;
        assert!(matches!(refused, Err(Error::ShapeDiffers { what: "memory_mb", .. })));
        snapshots.discard_snapshot(&folder).await.unwrap();
        let refused = snapshots.launch_from(&fork, &folder).await;
        assert!(matches!(refused, Err(Error::SnapshotDamaged { .. })));
    }
}
