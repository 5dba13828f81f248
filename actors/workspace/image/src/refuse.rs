//! Conversion of image errors to [`ToolError`].

use hivekeep_kernel::{Layer, ToolError};

use super::Error;
use crate::codes;

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let code = match &error {
            Error::Missing { .. } => codes::IMAGE_MISSING,
            Error::Corrupt { .. } => codes::IMAGE_CORRUPT,
            Error::Unknown { .. } => codes::IMAGE_UNKNOWN,
            Error::DiskSize { .. } => codes::DISK_SIZE,
            Error::OverlayExists { .. } => codes::DISK_EXISTS,
            Error::InUse { .. } => codes::IMAGE_IN_USE,
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                codes::HOST_DISK_FULL
            }
            _ => codes::IMAGE_FAILED,
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
