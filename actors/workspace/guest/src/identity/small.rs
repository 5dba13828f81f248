//! Small files that are given a new content.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Gives a file its content, of at most a page. Where it had as many bytes, they are overwritten by
/// one write: making and renaming another file costs a fresh fork, whose emulated CPU has to
/// translate the code of a file system first. Otherwise it appears with its new content, or stays
/// as it was.
///
/// Never synced: what is put here is put again by the next start, and a flush of the disk is what
/// a fork would wait for.
///
/// # Errors
/// As those of open(2), write(2) and rename(2).
pub(super) fn put(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    if let Ok(file) = File::options().write(true).custom_flags(libc::O_NOFOLLOW).open(path) {
        let meta = file.metadata()?;
        if meta.is_file() && meta.len() == content.len() as u64 {
            return file.write_all_at(content, 0);
        }
    }
    let temp = write_beside(path, content, mode)?;
    std::fs::rename(temp, path)
}

/// A new file in the same folder, to be renamed.
pub(crate) fn write_beside(path: &Path, content: &[u8], mode: u32) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temp = path.with_file_name(format!(".{name}.hivekeep"));
    let mut file = File::create(&temp)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(temp)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_content_of_the_same_length_is_written_in_place_and_another_is_exchanged() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, far) = (dir.path().join("file"), dir.path().join("far"));
        let inode = || std::fs::symlink_metadata(&path).expect("there").ino();
        put(&path, b"one\n", 0o444).expect("made");
        let first = inode();
        put(&path, b"two\n", 0o444).expect("overwritten");
        assert_eq!(
            (std::fs::read(&path).expect("read").as_slice(), inode()),
            (&b"two\n"[..], first)
        );
        put(&path, b"three\n", 0o444).expect("exchanged");
        assert_eq!(std::fs::read(&path).expect("read"), b"three\n");
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o444);

        // The target of a link is left alone.
        std::fs::write(&far, "other\n").expect("written");
        std::fs::remove_file(&path).expect("gone");
        std::os::unix::fs::symlink(&far, &path).expect("linked");
        put(&path, b"mine!\n", 0o644).expect("exchanged");
        assert_eq!(std::fs::read(&far).expect("read"), b"other\n");
        assert_eq!(std::fs::read(&path).expect("read"), b"mine!\n");
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 2, "nothing is left");
    }
}
