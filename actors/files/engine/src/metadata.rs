//! Metadata of files: texts by name, kept as extended attributes of the class `user`.

use std::{collections::BTreeMap, io, os::fd::AsFd, path::Path};

use cap_std::fs::File;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr, lgetxattr, llistxattr};
use rustix::io::Errno;

use crate::{FileError, FileErrorKind, error::failed};

/// Texts by name, without the class in front.
pub type Metadata = BTreeMap<String, String>;

/// Number of texts of one file.
pub const MAX_METADATA: usize = 64;
/// Size of a name, in bytes.
pub const MAX_METADATA_NAME_BYTES: usize = 128;
/// Size of a text, in bytes.
pub const MAX_METADATA_VALUE_BYTES: usize = 1024;

/// Class of attributes that programs may set.
const CLASS: &str = "user.";
/// Size of all names of a file that are read; no names of a file with more are returned.
const NAMES_BYTES: usize = 16 * 1024;

/// Refuses what cannot be kept.
///
/// # Errors
/// `InvalidMetadata`.
pub(crate) fn check(metadata: &Metadata) -> Result<(), FileError> {
    let refuse = |what: String| Err(FileError::new(FileErrorKind::InvalidMetadata, what));
    if metadata.len() > MAX_METADATA {
        return refuse(format!("{} texts; at most {MAX_METADATA} are kept", metadata.len()));
    }
    for (name, value) in metadata {
        let sound = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if name.is_empty() || name.len() > MAX_METADATA_NAME_BYTES || !name.bytes().all(sound) {
            return refuse(format!("{name:.80?} is not a valid name of metadata"));
        }
        if value.len() > MAX_METADATA_VALUE_BYTES || value.contains('\0') {
            return refuse(format!(
                "the text of {name:?} has a NUL or more than {MAX_METADATA_VALUE_BYTES} bytes"
            ));
        }
    }
    Ok(())
}

/// Sets all texts of an open file; others that it has stay.
///
/// # Errors
/// `NoMetadata` where the file system keeps none, `InvalidMetadata` where it keeps less.
pub(crate) fn set(
    file: impl AsFd,
    metadata: &Metadata,
    path: impl std::fmt::Display,
) -> Result<(), FileError> {
    for (name, value) in metadata {
        let name = format!("{CLASS}{name}");
        let set = fsetxattr(&file, &*name, value.as_bytes(), XattrFlags::empty());
        set.map_err(|errno| match errno {
            Errno::OPNOTSUPP => {
                let message = format!("the file system of `{path}` keeps no metadata");
                FileError::new(FileErrorKind::NoMetadata, message)
            }
            Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::DQUOT => {
                let message = format!("the file system keeps less metadata of `{path}`");
                FileError::new(FileErrorKind::InvalidMetadata, message)
            }
            errno => failed(&io::Error::from(errno), &path),
        })?;
    }
    Ok(())
}

/// Texts of what a path names, a link itself. Those that cannot be read, or that nobody could have set
/// here, are left out; bytes that are not UTF-8 are replaced.
pub(crate) fn of(path: &Path) -> Metadata {
    texts(|names| llistxattr(path, names), |name, value| lgetxattr(path, name, value))
}

/// Like [`of`], for a file that is open for reading.
pub(crate) fn of_open(file: &File) -> Metadata {
    texts(|names| flistxattr(file, names), |name, value| fgetxattr(file, name, value))
}

fn texts(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&str, &mut [u8]) -> rustix::io::Result<usize>,
) -> Metadata {
    let mut names = vec![0; NAMES_BYTES];
    let Ok(length) = list(&mut names) else { return Metadata::new() };
    let names = names[..length].split(|byte| *byte == 0).filter_map(|name| {
        let name = std::str::from_utf8(name).ok()?.strip_prefix(CLASS)?;
        (!name.is_empty() && name.len() <= MAX_METADATA_NAME_BYTES).then_some(name)
    });
    let each = names.take(MAX_METADATA).filter_map(|name| {
        let mut value = [0; MAX_METADATA_VALUE_BYTES];
        let length = get(&format!("{CLASS}{name}"), &mut value).ok()?;
        Some((name.to_owned(), String::from_utf8_lossy(&value[..length]).into_owned()))
    });
    each.collect()
}
