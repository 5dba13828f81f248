//! Groups of the kernel's (cgroups), which bound what all processes of a program take together.

use std::{
    fmt::Debug,
    io,
    ops::{Deref, DerefMut},
    os::fd::OwnedFd,
    sync::{Arc, OnceLock},
};

use tokio::process::Command;

use super::HostBounds;

/// Maker of groups, of the family that has the kernel's.
pub trait HostGroups: Debug + Send + Sync {
    /// Makes an empty group with bounds. Blocks for some system calls.
    ///
    /// # Errors
    /// When the kernel refuses it, or one of the bounds.
    fn make(&self, bounds: HostBounds) -> io::Result<Box<dyn HostGroup>>;
}

/// Group of one program. Dropped, its processes are killed, and it is removed.
pub trait HostGroup: Debug + Send + Sync {
    /// The file by which a process joins it, with a `0`.
    ///
    /// # Errors
    /// Of the kernel.
    fn procs(&self) -> io::Result<OwnedFd>;

    /// Kills all of it.
    fn kill(&self);

    /// True if the kernel has ended it because it took more memory than it may.
    fn ran_out(&self) -> bool;
}

/// This daemon's; empty where the host has none.
static GROUPS: OnceLock<Arc<dyn HostGroups>> = OnceLock::new();

/// Has the programs that are started from now on run in groups. A second maker changes nothing.
pub fn bound_by(groups: Arc<dyn HostGroups>) {
    let _first = GROUPS.set(groups);
}

pub(super) fn make(bounds: HostBounds) -> io::Result<Option<Box<dyn HostGroup>>> {
    GROUPS.get().map(|groups| groups.make(bounds)).transpose()
}

/// Command of a program, with the group that it joins.
#[derive(Debug)]
pub struct HostCommand {
    command: Command,
    pub(super) group: Option<Box<dyn HostGroup>>,
}

impl HostCommand {
    /// bubblewrap, in no group yet.
    pub fn bwrap() -> Self {
        Command::new("bwrap").into()
    }

    pub(super) fn into_parts(self) -> (Command, Option<Box<dyn HostGroup>>) {
        (self.command, self.group)
    }
}

impl From<Command> for HostCommand {
    fn from(command: Command) -> Self {
        Self { command, group: None }
    }
}

impl Deref for HostCommand {
    type Target = Command;

    fn deref(&self) -> &Command {
        &self.command
    }
}

impl DerefMut for HostCommand {
    fn deref_mut(&mut self) -> &mut Command {
        &mut self.command
    }
}
