//! Tool declarations of volumes and of the files in them.

mod file;
mod volume;

pub(crate) use file::{
    Encoding, MAX_FILE_BYTES, VolumeFileDelete, VolumeFileDeleted, VolumeFileEntry, VolumeFileList,
    VolumeFileListed, VolumeFileMade, VolumeFileMkdir, VolumeFileRead, VolumeFileText,
    VolumeFileWrite, VolumeFileWritten,
};
pub(crate) use volume::{
    VolumeCreate, VolumeDelete, VolumeDeleted, VolumeList, VolumeListed, VolumeQuota, VolumeRow,
    VolumeUsage,
};

use hivekeep_kernel::{ServiceActor, ToolGroup};

use crate::volumes::VolumeService;

/// Groups of tools, in listing order.
pub(crate) const FAMILIES: &[&ToolGroup<ServiceActor<VolumeService>>] =
    &[&volume::FAMILY, &file::FAMILY];
