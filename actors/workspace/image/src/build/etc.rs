//! Folders and small files common to all images, with the account of an ordinary user beside root's.

use std::collections::HashMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use crate::{Error, FileOwner, Result, Suite};

/// Commands that tools and agents take for granted; an image without one is not finished.
pub(super) const EXPECTED_COMMANDS: [&str; 22] = [
    "awk", "cat", "cp", "cut", "diff", "env", "find", "git", "grep", "head", "ls", "mkdir", "mv",
    "ps", "rm", "sed", "sh", "sort", "tail", "tar", "wc", "xargs",
];

/// Folder that commands run in where they name none.
pub(super) const WORKSPACE: &str = "workspace";

const FOLDERS: [(&str, u32); 23] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("usr/lib", 0o755),
    ("usr/lib64", 0o755),
    ("usr/local", 0o755),
    ("usr/local/bin", 0o755),
    ("usr/sbin", 0o755),
    ("var", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
    ("workspace", 0o755),
];

const HOSTS: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
/// Default resolvers until the guest daemon writes the workspace's own.
const RESOLV_CONF: &str = "nameserver 1.1.1.1\nnameserver 8.8.8.8\n";

/// Makes the folder hierarchy of `base`, with `/bin` and the like as links into `/usr`.
pub(super) fn folders(tree: &Path) -> Result<()> {
    fs::create_dir_all(tree).map_err(Error::io("create", tree))?;
    set_mode(tree, 0o755)?;
    for (name, mode) in FOLDERS {
        folder(&tree.join(name), mode)?;
    }
    for name in ["bin", "lib", "lib64", "sbin"] {
        let path = tree.join(name);
        symlink(format!("usr/{name}"), &path).map_err(Error::io("link", &path))?;
    }
    Ok(())
}

/// Writes the small files of `base`, most of them below `/etc`.
pub(super) fn base_files(tree: &Path, suite: Suite) -> Result<()> {
    let number = suite.version();
    let release = format!(
        "PRETTY_NAME=\"hivekeep base (from Debian {number})\"\nNAME=\"hivekeep base\"\nID=hivekeep\n\
         ID_LIKE=debian\nVERSION_ID=\"{number}\"\nVERSION_CODENAME={suite}\n"
    );
    let files: [(&str, u32, &str); 9] = [
        (
            "passwd",
            0o644,
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
        ),
        ("group", 0o644, "root:x:0:\ntty:x:5:\nusers:x:100:\nnogroup:x:65534:\n"),
        ("shadow", 0o600, "root:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n"),
        ("hostname", 0o644, "workspace\n"),
        ("nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n"),
        ("os-release", 0o644, &release),
        (
            "profile",
            0o644,
            "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nexport LANG=C.UTF-8\n",
        ),
        ("shells", 0o644, "/bin/sh\n/bin/bash\n"),
        ("machine-id", 0o644, ""),
    ];
    for (name, mode, text) in files {
        file(&tree.join("etc").join(name), mode, text)?;
    }
    // Debian's git runs these two names when nothing else is set.
    file(&tree.join("usr/bin/pager"), 0o755, "#!/bin/sh\nexec less \"$@\"\n")?;
    file(&tree.join("usr/bin/editor"), 0o755, "#!/bin/sh\nexec vi \"$@\"\n")?;
    network_files(tree)
}

/// Adds the files that an image built by Debian's own tools still lacks.
pub(super) fn debian_files(tree: &Path) -> Result<()> {
    folder(&tree.join(WORKSPACE), 0o755)?;
    file(&tree.join("etc/hostname"), 0o644, "workspace\n")?;
    // Left empty: each workspace gets an identity of its own at first boot.
    file(&tree.join("etc/machine-id"), 0o444, "")?;
    file(
        &tree.join("etc/apt/apt.conf.d/90hivekeep"),
        0o644,
        "APT::Install-Recommends \"false\";\n",
    )?;
    network_files(tree)
}

fn network_files(tree: &Path) -> Result<()> {
    file(&tree.join("etc/hosts"), 0o644, HOSTS)?;
    file(&tree.join("etc/resolv.conf"), 0o644, RESOLV_CONF)
}

/// Makes the folders that a file needs, readable for all.
pub(super) fn parent_folders(file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    if folder.exists() {
        return Ok(());
    }
    parent_folders(folder)?;
    fs::create_dir(folder).map_err(Error::io("create", folder))?;
    set_mode(folder, 0o755)
}

/// Makes a folder with its permissions; one that is there gets them.
pub(super) fn folder(path: &Path, mode: u32) -> Result<()> {
    if !path.is_dir() {
        fs::create_dir(path).map_err(Error::io("create", path))?;
    }
    // Set separately, because the builder's umask must not matter.
    set_mode(path, mode)
}

/// Writes a file, replacing any present one; its folder exists.
pub(super) fn file(path: &Path, mode: u32, text: &str) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        fs::remove_file(path).map_err(Error::io("replace", path))?;
    }
    fs::write(path, text).map_err(Error::io("write", path))?;
    set_mode(path, mode)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(Error::io("chmod", path))
}

/// Name of the user, of its group, and of its folder below `home`.
const USER: &str = "user";
/// Id of both: the first that Debian gives to a person.
const USER_ID: u32 = 1000;

/// Adds the account to a tree whose `etc/passwd`, `etc/group` and `etc/shadow` are there. It has no password,
/// and bash as its shell. What it owns is put into `owners`, for a builder that is not root.
pub(super) fn add_user(tree: &Path, owners: &mut HashMap<String, FileOwner>) -> Result<()> {
    let home = format!("home/{USER}");
    for (file, line) in [
        ("passwd", format!("{USER}:x:{USER_ID}:{USER_ID}::/{home}:/bin/bash\n")),
        ("group", format!("{USER}:x:{USER_ID}:\n")),
        ("shadow", format!("{USER}:*:19000:0:99999:7:::\n")),
    ] {
        let path = tree.join("etc").join(file);
        let written = OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(Error::io("write", &path))?;
    }
    let home_folder = tree.join(&home);
    folder(&home_folder, 0o755)?;
    give_to_user(tree, &home, owners)
}

/// Makes the user the owner of a folder that is there.
pub(super) fn give_to_user(
    tree: &Path,
    name: &str,
    owners: &mut HashMap<String, FileOwner>,
) -> Result<()> {
    let folder = tree.join(name);
    if rustix::process::geteuid().is_root() {
        chown(&folder, Some(USER_ID), Some(USER_ID)).map_err(Error::io("chown", &folder))?;
    }
    owners.insert(name.to_owned(), FileOwner { uid: USER_ID, gid: USER_ID, capability: None });
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
        add_user(tree.path(), &mut owners).expect("added");
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
