//! Atomic exchange of a repository's tree for one that was made beside it.
//!
//! Both are names in the root of the volume, so no path of a guest's making is followed, and the file
//! system makes the exchange in one transaction: at any moment one whole tree has the label.

use std::{fs::File, io, path::Path};

use hivekeep_kernel::fault_point;
use rustix::{
    fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with, syncfs},
    io::Errno,
};

/// Name of the tree beside the one with the label.
pub(crate) fn beside(label: &str) -> String {
    format!(".{label}.new")
}

/// Puts the tree beside in the place of the other, durably, and removes that. Blocks.
///
/// # Errors
/// Where one could not be exchanged for the other; then the old tree has its place. What could not be
/// removed of the old one is none: the next operation removes it.
pub(crate) fn put_in_place(volume: &Path, label: &str) -> io::Result<()> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = File::from(openat(CWD, volume, how, Mode::empty())?);
    let new = beside(label);
    // Its files are on the disk before they have the place.
    syncfs(&root)?;
    fault_point!("repository.before_exchange");
    match renameat_with(&root, &new, &root, label, RenameFlags::EXCHANGE) {
        Err(Errno::NOENT) => renameat_with(&root, &new, &root, label, RenameFlags::NOREPLACE)?,
        exchanged => exchanged?,
    }
    fault_point!("repository.after_exchange");
    syncfs(&root)?;
    if let Err(error) = hivekeep_fs::remove_tree(&volume.join(&new)) {
        tracing::warn!(%label, %error, "a repository's old tree stays until its next operation");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_tree_has_the_place_and_the_old_one_is_gone() {
        let volume = tempfile::tempdir().expect("a folder");
        let at = |path: &str| volume.path().join(path);
        let make = |folder: &str, text: &str| {
            std::fs::create_dir(at(folder)).expect("made");
            std::fs::write(at(folder).join("file"), text).expect("written");
        };
        assert!(put_in_place(volume.path(), "app").is_err(), "there is none");
        for text in ["one", "two"] {
            make(".app.new", text);
            put_in_place(volume.path(), "app").expect("put in place");
            assert_eq!(std::fs::read_to_string(at("app/file")).expect("read"), text);
            assert!(!at(".app.new").exists());
        }
        assert!(put_in_place(volume.path(), "app").is_err());
        assert!(at("app/file").exists(), "the old one stays");
        // A link in its place is exchanged, and what it leads to stays.
        std::os::unix::fs::symlink(at("app"), at("link")).expect("linked");
        make(".link.new", "three");
        put_in_place(volume.path(), "link").expect("put in place");
        assert_eq!(std::fs::read_to_string(at("app/file")).expect("read"), "two");
        assert_eq!(std::fs::read_to_string(at("link/file")).expect("read"), "three");
    }
}
