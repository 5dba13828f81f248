//! Hard links: second names that keep files whoever removes the first ones.

use std::{fs, io, path::Path};

use hivekeep_kernel::{Layer, LayerId, ToolError};

use crate::codes;

/// The layer that a file is, if its name is one.
pub(super) fn layer_of(name: &std::ffi::OsStr) -> Option<LayerId> {
    name.to_str()?.strip_suffix(".qcow2")?.parse().ok()
}

/// Links every layer that is in a folder and not in the other one yet. Blocks.
pub(super) fn link_all(from: &Path, into: &Path) -> Result<(), ToolError> {
    let failed = |error: io::Error| {
        let message = format!("the layers of disks cannot be linked: {error}");
        ToolError::new(Layer::Store, codes::BACKUP_FAILED, message)
            .next("keep the whole state folder on one file system that has hard links")
    };
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if layer_of(&entry.file_name()).is_none() {
            continue;
        }
        match fs::hard_link(entry.path(), into.join(entry.file_name())) {
            // Linked before, or merged or removed since the folder was listed.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
                ) => {}
            linked => linked.map_err(failed)?,
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_linked_once_and_outlive_their_first_names() {
        let dir = tempfile::tempdir().unwrap();
        let (from, into) = (dir.path().join("from"), dir.path().join("into"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&into).unwrap();
        let (one, two) = (format!("{}.qcow2", LayerId::new()), format!("{}.qcow2", LayerId::new()));
        fs::write(from.join(&one), "one").unwrap();
        fs::write(from.join(&one).with_extension("new"), "half").unwrap();
        link_all(&from, &into).unwrap();
        fs::remove_file(from.join(&one)).unwrap();
        fs::write(from.join(&two), "two").unwrap();
        link_all(&from, &into).unwrap();
        link_all(&from, &into).unwrap();
        assert_eq!(fs::read(into.join(&one)).unwrap(), b"one");
        assert_eq!(fs::read(into.join(&two)).unwrap(), b"two");
        assert_eq!(fs::read_dir(&into).unwrap().count(), 2);
        let error = link_all(&dir.path().join("none"), &into).unwrap_err();
        assert_eq!(error.code, "backup_failed");
    }
}
