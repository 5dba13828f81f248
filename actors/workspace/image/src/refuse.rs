//! An image's failures as callers see them.

use hivekeep_kernel::{Layer, ToolError};

use super::Error;

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let code = match &error {
            Error::Missing { .. } => "image_missing",
            Error::Corrupt { .. } => "image_corrupt",
            Error::Unknown { .. } => "image_unknown",
            Error::DiskSize { .. } => "disk_size",
            Error::OverlayExists { .. } => "disk_exists",
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                "host_disk_full"
            }
            _ => "image_failed",
        };
        let known = Self::new(Layer::Machine, code, text);
        match &error {
            Error::Missing { remedy, .. } | Error::Corrupt { remedy, .. } => {
                known.next(remedy.clone())
            }
            Error::DiskSize { min_gb, max_gb, .. } => {
                known.detail("min_gb", *min_gb).detail("max_gb", *max_gb)
            }
            _ => known.next("`hivekeep image list` shows the images"),
        }
    }
}
