//! Conversion of a whole state, as a machine with private memory gives it, to memory and devices
//! apart.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use super::super::control::Control;
use super::super::launch::{self, Origin};
use super::super::nic;
use super::super::ram::{self, Copy};
use super::{Saving, Shared, blocking, create};
use crate::{Disk, Driver, Error, LogsOnDiscard, MachinePlan};

impl Saving<'_> {
    /// Loads a whole state into a QEMU whose memory the daemon shares, and saves its devices alone.
    pub(super) async fn convert(&self, state: OwnedFd) -> Result<Shared, Error> {
        let (ram, memory_mb) = (self.converted(state).await?, self.held.shape.memory_mb);
        blocking(move || {
            let copy = Copy::of(ram, memory_mb).map_err(Error::io("copy", "ram".as_ref()))?;
            Ok(Arc::new(Mutex::new(copy)))
        })
        .await
    }

    /// Like [`Self::convert`], but returns the memory as that QEMU left it.
    pub(in crate::vm) async fn converted(&self, state: OwnedFd) -> Result<OwnedFd, Error> {
        let (plan, nic) = (self.converter(), self.held.shape.nic);
        let plan = blocking(move || nic::fit(&plan, nic)).await?;
        let memory_mb = self.held.shape.memory_mb;
        let made = || ram::make(memory_mb).and_then(|ram| Ok((ram.try_clone()?, ram)));
        let (kept, ram) = made().map_err(Error::io("make memory for", "ram".as_ref()))?;
        self.driver.prepare(&plan).await?;
        let converted = self.convert_with(&plan, Origin::Full { ram: kept, state }).await;
        self.driver.discard(&plan, LogsOnDiscard::Remove).await?;
        converted.map(|()| ram)
    }

    async fn convert_with(&self, plan: &MachinePlan, origin: Origin) -> Result<(), Error> {
        let processor = launch::processor_of(self.driver, plan, &self.held.shape);
        let launched = launch::launch(self.driver, plan, origin, processor).await?;
        let saved = async {
            let control = Control::of(&launched.handle).await?;
            control.prepare_save(create(self.folder.device()).await?, true).await?;
            Ok(control.save().await?)
        };
        let saved: Result<(), Error> = saved.await;
        self.driver.kill(&launched.handle).await?;
        saved
    }

    /// A machine of the same shape that never runs. Named so that no workspace accounts for it: if
    /// the daemon dies now, the next one's sweep removes it.
    fn converter(&self) -> MachinePlan {
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
        MachinePlan { workspace, uuid, folders, disk, cid, nic: None, ..self.plan.clone() }
    }
}
