//! Tool declarations of the file families.

mod fs;

pub(crate) use fs::*;

use hivekeep_kernel::{ServiceActor, ToolGroup};

use crate::files::Files;

/// Groups of tools, in listing order.
pub(crate) const FAMILIES: &[&ToolGroup<ServiceActor<Files>>] = &[&fs::FAMILY];
