//! Groups of the kernel's for programs on the host, which lie beside those of machines.

use std::{io, os::fd::OwnedFd, sync::Arc};

use hivekeep_machine::{HostEnv, ProgramGroup, ProgramGroups};
use hivekeep_runtime::host_process::{HostBounds, HostGroup, HostGroups, bound_by};

/// Has them made for programs that start from now on, where the host has groups for it. Blocks.
pub(crate) fn bound(host_env: &HostEnv) {
    match host_env.program_groups() {
        Ok(groups) => bound_by(Arc::new(KernelGroups(groups))),
        Err(why) => tracing::info!(why, "what programs on the host take together has no bound"),
    }
}

#[derive(Debug)]
struct KernelGroups(ProgramGroups);

#[derive(Debug)]
struct KernelGroup(ProgramGroup);

impl HostGroups for KernelGroups {
    fn make(&self, bounds: HostBounds) -> io::Result<Box<dyn HostGroup>> {
        let memory_bytes = bounds.memory_mb.map(|mb| mb.saturating_mul(1024 * 1024));
        let processes = u32::try_from(bounds.processes).unwrap_or(u32::MAX);
        let group = self.0.make(memory_bytes, processes).map_err(io::Error::other)?;
        Ok(Box::new(KernelGroup(group)))
    }
}

impl HostGroup for KernelGroup {
    fn procs(&self) -> io::Result<OwnedFd> {
        self.0.procs()
    }

    fn kill(&self) {
        self.0.kill();
    }

    fn ran_out(&self) -> bool {
        self.0.ran_out()
    }
}

#[cfg(test)]
mod tests;
