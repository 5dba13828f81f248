use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fs, io};

use super::*;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_is_replaced_whole_or_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/file");
    make_folder(path.parent().unwrap(), 0o700).unwrap();
    assert_eq!(fs::metadata(folder.path().join("a")).unwrap().permissions().mode() & 0o777, 0o700);
    // A crash left this one, with a mode of its own.
    fs::write(part_of(&path), "half of the one before").unwrap();
    replace(&path, 0o600, b"one").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let failed = replace_by(&path, |part| {
        fs::write(part, "half")?;
        Err::<(), _>(io::Error::other("no more"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "no more");
    assert_eq!(fs::read(&path).unwrap(), b"one");
    assert_eq!(names(path.parent().unwrap()), ["file"]);
}

#[test]
fn a_taken_name_is_not_renamed_over_and_a_gone_one_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("new"), "new").unwrap();
    fs::write(at("old"), "old").unwrap();
    let refused = rename_new(&at("new"), &at("old")).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
    remove_file(&at("old")).unwrap();
    remove_file(&at("old")).unwrap();
    rename_new(&at("new"), &at("old")).unwrap();
    // A link that leads nowhere is no file to be synced.
    std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
    sync_tree(folder.path()).unwrap();
    assert_eq!(names(folder.path()), ["link", "old"]);
}
