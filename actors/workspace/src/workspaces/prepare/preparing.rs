//! Names of preparations that are under way, each in one call at a time.

use std::{sync::Arc, time::Duration};

use dashmap::DashSet;
use hivekeep_kernel::{Layer, ToolError};

use crate::{codes, name::WorkspaceName};

/// Names that are being prepared now.
#[derive(Clone, Default)]
pub(in crate::workspaces) struct Preparing(Arc<DashSet<WorkspaceName>>);

impl Preparing {
    /// Takes a name until what this returns is dropped.
    ///
    /// # Errors
    /// `prepare_in_progress`.
    pub(super) fn enter(&self, name: &WorkspaceName) -> Result<Entered, ToolError> {
        if self.0.insert(name.clone()) {
            return Ok(Entered { all: self.clone(), name: name.clone() });
        }
        let message = format!("`{name}` is being prepared by another call");
        Err(ToolError::new(Layer::Actor, codes::PREPARE_IN_PROGRESS, message)
            .next("repeat the call when that one has ended: the same recipe is answered at once")
            .retry_after(Duration::from_secs(5)))
    }
}

/// Leaves when dropped.
pub(super) struct Entered {
    all: Preparing,
    name: WorkspaceName,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.all.0.remove(&self.name);
    }
}
