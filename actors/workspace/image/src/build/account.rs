//! Account of an ordinary user, which every built image has beside root's.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::path::Path;

use super::etc;
use crate::{Error, FileOwner, Result};

/// Name of the user, of its group, and of its folder below `home`.
const NAME: &str = "user";
/// Id of both: the first that Debian gives to a person.
const ID: u32 = 1000;

/// Adds the account to a tree whose `etc/passwd`, `etc/group` and `etc/shadow` are there. It has no password,
/// and bash as its shell. What it owns is put into `owners`, for a builder that is not root.
pub(super) fn add(tree: &Path, owners: &mut HashMap<String, FileOwner>) -> Result<()> {
    let home = format!("home/{NAME}");
    for (file, line) in [
        ("passwd", format!("{NAME}:x:{ID}:{ID}::/{home}:/bin/bash\n")),
        ("group", format!("{NAME}:x:{ID}:\n")),
        ("shadow", format!("{NAME}:*:19000:0:99999:7:::\n")),
    ] {
        let path = tree.join("etc").join(file);
        let written = OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(Error::io("write", &path))?;
    }
    let folder = tree.join(&home);
    etc::folder(&folder, 0o755)?;
    give(tree, &home, owners)
}

/// Makes the user the owner of a folder that is there.
pub(super) fn give(tree: &Path, name: &str, owners: &mut HashMap<String, FileOwner>) -> Result<()> {
    let folder = tree.join(name);
    if rustix::process::geteuid().is_root() {
        chown(&folder, Some(ID), Some(ID)).map_err(Error::io("chown", &folder))?;
    }
    owners.insert(name.to_owned(), FileOwner { uid: ID, gid: ID, capability: None });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_user_is_in_all_files_and_owns_its_folder() {
        let tree = tempfile::tempdir().expect("a folder");
        let etc = tree.path().join("etc");
        fs::create_dir_all(&etc).expect("made");
        fs::create_dir(tree.path().join("home")).expect("made");
        for name in ["passwd", "group", "shadow"] {
            fs::write(etc.join(name), "root:x:0:\n").expect("written");
        }
        let mut owners = HashMap::new();
        add(tree.path(), &mut owners).expect("added");
        let read = |name: &str| fs::read_to_string(etc.join(name)).expect("read");
        assert!(read("passwd").ends_with("user:/bin/bash\n"), "{}", read("passwd"));
        assert!(read("passwd").starts_with("root:"), "the others stay");
        assert!(read("group").ends_with("user:x:1000:\n"));
        assert!(read("shadow").contains("user:*:"), "no password");
        assert_eq!(owners["home/user"].uid, 1000);
        if rustix::process::geteuid().is_root() {
            let owner = fs::metadata(tree.path().join("home/user")).expect("there").uid();
            assert_eq!(owner, 1000);
        }
    }
}
